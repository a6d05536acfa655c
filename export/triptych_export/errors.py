"""What can go wrong in an export.

ExportError
├── SourceError    the checkpoint or the sentences for parity cannot be used
├── GraphError     a graph came out otherwise than the runtime needs it
├── RangeError     numbers of the model are too large for a precision
└── ParityError    the exported graphs answer differently from PyTorch
"""


class ExportError(Exception):
    """Base of all export errors; the message names the cause."""


class SourceError(ExportError):
    """What was given to export cannot be used."""


class GraphError(ExportError):
    """The tracer produced a graph that cannot be served; this is a defect of Triptych."""


class RangeError(ExportError):
    """Weights or activations lie beyond what a precision can hold; the message names the layer."""


class ParityError(ExportError):
    """The bundle does not reproduce the checkpoint's outputs; nothing was written."""
