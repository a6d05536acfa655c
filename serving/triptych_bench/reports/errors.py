"""What goes wrong with files of results."""


class ReportError(ValueError):
    """A file cannot be read as a report; the message names the file and the place in it."""
