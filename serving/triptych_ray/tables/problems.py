"""What to say of an error."""

from __future__ import annotations

from triptych_documents.errors import DocumentError


def problem_of(error: Exception) -> str:
    """One line; of errors that nobody foresaw with their kind."""
    said = " ".join(str(error).split())
    return said if isinstance(error, DocumentError | OSError) and said else f"{type(error).__name__}: {said}"
