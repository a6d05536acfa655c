"""Errors of an export."""


class ExportError(Exception):
    """Base of all export errors; the message names the cause."""


class SourceError(ExportError):
    """The checkpoint, its files or the export options cannot be used."""


class WeightsError(SourceError):
    """The weights do not fit the model that config.json describes."""


class GraphError(ExportError):
    """The tracer produced a graph that cannot be served; this is a defect of Triptych."""


class RangeError(ExportError):
    """Weights or activations exceed the range of a precision; the message names the layer."""


class ParityError(ExportError):
    """The bundle does not reproduce the checkpoint's outputs; nothing was written."""
