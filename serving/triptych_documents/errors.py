"""What can be wrong with a document or with what is asked for it.

DocumentError(ValueError)
    DamagedDocumentError    it cannot be read: not its format, not its encoding, or too large when unpacked
    UnknownFormatError      no format of this name, suffix or media type
    OptionError             an option is out of range or does not go with the format
"""


class DocumentError(ValueError):
    """Base of all. The message is one line that names place, value and limit."""


class DamagedDocumentError(DocumentError):
    """The document cannot be read."""

    def __init__(self, problem: str, where: str = "") -> None:
        super().__init__(f"{where}: {problem}" if where else problem)
        self.problem, self.where = problem, where


class UnknownFormatError(DocumentError):
    """Nobody reads this kind of document."""


class OptionError(DocumentError):
    """An option cannot be used."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field, self.problem = field, problem
