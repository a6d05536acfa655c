"""Errors about documents and their options.

DocumentError(ValueError)
    DamagedDocumentError    unreadable: wrong format, wrong encoding, or too large when unpacked
    UnknownFormatError      no format has this name, suffix or media type
    OptionError             an option is out of range or does not apply to the format
"""


class DocumentError(ValueError):
    """Base class of all document errors. The message is one line that names place, value and limit."""


class DamagedDocumentError(DocumentError):
    """The document cannot be read."""

    def __init__(self, problem: str, where: str = "") -> None:
        super().__init__(f"{where}: {problem}" if where else problem)


class UnknownFormatError(DocumentError):
    """No reader supports this kind of document."""


class OptionError(DocumentError):
    """An option has an invalid value."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field, self.problem = field, problem
