"""Messages of programs as pieces.

Tags in a message are codes, and so are accelerator signs (_File, &File), so that only words are translated.
"""

import re
from collections.abc import Iterator, Sequence
from functools import cache

from triptych_documents.formats.shared.inline_codes import ScannedPart, ScannedTag, coded
from triptych_documents.unit import Code, Piece, Role, joined

_WHITE = " \t\r\n\v\f"
_TAG = re.compile(r"""<(/?)([A-Za-z][\w:.-]*)((?:\s+[\w:.-]+\s*=\s*(?:"[^"<>]*"|'[^'<>]*'))*)\s*(/?)>""")
_ENTITY = re.compile(r"&#?\w+;")
_FORMAT = re.compile(r"%(?:\([^()]*\))?[-+#0 .*$\d]*[a-zA-Z@]|\{[^{}]*\}")
_LETTER = re.compile(rf"{_TAG.pattern}|{_FORMAT.pattern}|(?P<letter>[^\W\d_])")


def split_message(message: str, signs: str) -> tuple[str, tuple[Piece, ...], str]:
    """Return leading white space, the pieces of a unit, and trailing white space; `signs` are those of accelerators."""
    middle = message.strip(_WHITE)
    if not middle:
        return message, (), ""
    start = message.index(middle[0])
    return message[:start], joined(coded(list(_parts(middle, signs)))), message[start + len(middle) :]


def _parts(text: str, signs: str) -> Iterator[ScannedPart]:
    codes = list(_codes(text, _accelerator(text, signs)))
    at = 0
    for part, code in zip(codes, coded(codes), strict=True):
        alone = isinstance(code, Code) and code.role is Role.ALONE
        if alone and text.startswith("<", part.start) and not text.endswith("/>", part.start, part.end):
            continue  # a lone <file> is a word
        yield from (ScannedPart(text[at : part.start], at, part.start), part)
        at = part.end
    yield ScannedPart(text[at:], at, len(text))


def _codes(text: str, sign: int | None) -> Iterator[ScannedPart]:
    for found in _TAG.finditer(text):
        if sign is not None and sign < found.start():
            yield ScannedPart(ScannedTag(text[sign], Role.ALONE), sign, sign + 1)
            sign = None
        role = Role.CLOSE if found[1] else Role.ALONE if found[4] else Role.OPEN
        yield ScannedPart(ScannedTag(found[0], role, found[2]), found.start(), found.end())
        if sign is not None and sign < found.end():  # not an accelerator inside of a tag
            sign = None
    if sign is not None:
        yield ScannedPart(ScannedTag(text[sign], Role.ALONE), sign, sign + 1)


def _accelerator(text: str, signs: str) -> int | None:
    """Return the position of the accelerator sign, if there is exactly one candidate."""
    if not any(character.isupper() for character in text):
        return None
    found = [found.end() - 1 for sign in signs if text.count(sign) == 1 for found in _sign(sign).finditer(text)]
    return found[0] if len(found) == 1 and not _ENTITY.match(text, found[0]) else None


@cache
def _sign(sign: str) -> re.Pattern[str]:
    """Match a sign before or inside of a word: E_xit, Pref&erences; but not AT&T, file_name."""
    return re.compile(rf"(?<![\w{re.escape(sign)}]){re.escape(sign)}(?=[^\W\d_])|\b[A-Z][a-z]*{re.escape(sign)}(?=[a-z])")


def joined_message(pieces: Sequence[Piece]) -> str:
    """Write joined pieces as a message; an accelerator sign that lost its letter moves to another one."""
    texts = [piece.raw if isinstance(piece, Code) else piece for piece in pieces]
    sign = next((at for at, piece in enumerate(pieces) if isinstance(piece, Code) and len(piece.raw) == 1), None)
    after = pieces[sign + 1] if sign is not None and sign + 1 < len(pieces) else ""
    if sign is None or (isinstance(after, str) and after[:1].isalpha()):
        return "".join(texts)
    raw, texts[sign] = texts[sign], ""
    text = "".join(texts)
    first = next((match.start() for match in _LETTER.finditer(text) if match["letter"]), None)
    return text if first is None else f"{text[:first]}{raw}{text[first:]}"


def formats(text: str) -> list[str]:
    """Return the format directives of a message, sorted."""
    return sorted(_FORMAT.findall(text))
