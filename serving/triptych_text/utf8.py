"""Errors about text that is not UTF-8."""


def not_utf8(error: UnicodeDecodeError, raw: bytes) -> str:
    """Return the problem of bytes that are not UTF-8; the error counts them from behind a byte order mark."""
    return f"not UTF-8 ({error.reason} at byte {len(raw) - len(error.object) + error.start})"
