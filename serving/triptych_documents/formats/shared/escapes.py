"""Escapes with backslashes, as in Java's .properties, Apple's .strings and Android's resources."""

import re

_ESCAPE = re.compile(r"\\(?:[uU]([0-9A-Fa-f]{4})|([\s\S]))")
_NAMED = {"n": "\n", "t": "\t", "r": "\r", "f": "\f"}


def unescaped(text: str) -> str:
    """Replace escapes by their characters; those without a meaning by the character after the backslash."""
    found = _ESCAPE.sub(lambda match: chr(int(match[1], 16)) if match[1] else _NAMED.get(match[2], match[2]), text)
    return found.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")  # joins surrogate pairs
