"""Messages as pieces, and strings as PO files write them (GNU gettext manual, "The Format of PO Files").

Tags in a message are codes, and so are accelerator signs (_File, &File), so that only words are translated.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache

from triptych_documents.formats.shared.inline_codes import ScannedPart, ScannedTag, coded
from triptych_documents.unit import Code, Piece, Role, joined

WIDTH = 79  # line width of gettext's tools
_WHITE = " \t\r\n\v\f"
_TAG = re.compile(r"""<(/?)([A-Za-z][\w:.-]*)((?:\s+[\w:.-]+\s*=\s*(?:"[^"<>]*"|'[^'<>]*'))*)\s*(/?)>""")
SIGNS = "_&"  # accelerator signs, unless the file declares its own
_ESCAPES = {"\\": "\\\\", "\t": "\\t", "\r": "\\r", "\n": "\\n", "\v": "\\v", "\b": "\\b", "\f": "\\f", '"': '\\"'}
_WRITTEN, _READ = str.maketrans(_ESCAPES), {escape: sign for sign, escape in _ESCAPES.items()}
_JOINT = re.compile(r'"\s*"')
_HEADER_FIELD = re.compile(rf"((?:{_JOINT.pattern})*)((?:[^\\]|\\[^n])*(?:\\n|\Z))")
_ENTITY = re.compile(r"&#?\w+;")
_FORMAT = re.compile(r"%(?:\([^()]*\))?[-+#0 .*$\d]*[a-zA-Z]|\{[^{}]*\}")
_LETTER = re.compile(rf"{_TAG.pattern}|{_FORMAT.pattern}|(?P<letter>[^\W\d_])")


def split(message: str, signs: str = SIGNS) -> tuple[str, tuple[Piece, ...], str]:
    """Return leading white space, the pieces of a unit, and trailing white space."""
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


def message(pieces: Sequence[Piece]) -> str:
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


def unescaped(text: str) -> str:
    """Return the text of a string as it is written."""
    return re.sub(r"\\.", lambda escape: _READ.get(escape[0], escape[0]), text)


def string(keyword: str, text: str, *, width: int, line_end: str) -> str:
    """Write a keyword and its string with the line breaks of gettext's tools; without a width only after line feeds."""
    lines = re.findall(r"[^\n]*\n|[^\n]+", text)
    written = [line.translate(_WRITTEN) for line in lines]
    if not lines or (len(lines) == 1 and (not width or len(keyword) + 3 + len(written[0]) <= width)):
        return f'{keyword} "{written[0] if lines else ""}"'
    quoted = [f'"{part}"' for line in written for part in (_wrapped(line, width - 2) if width else [line])]
    return line_end.join([f'{keyword} ""', *quoted])


def _wrapped(line: str, width: int) -> list[str]:
    parts = [""]
    for word in re.findall(r"[^ ]* +|[^ ]+", line):
        if parts[-1] and len(parts[-1]) + len(word) > width:
            parts.append("")
        parts[-1] += word
    return parts


def with_fields(header: str, new: Mapping[str, str], line_end: str) -> str:
    """Set fields of a header; other fields keep their lines."""
    start, end = header.index('"') + 1, header.rindex('"')
    fields = [[joint, field] for joint, field in _HEADER_FIELD.findall(header, start, end) if joint or field]
    if fields and fields[-1][1][-2:] not in ("", "\\n"):
        fields[-1][1] += "\\n"
    named = {_JOINT.sub("", field).partition(":")[0].strip(): at for at, (_, field) in enumerate(fields)}
    for name, value in new.items():
        if name not in named:
            fields.append([f'"{line_end}"', ""])
        fields[named.get(name, -1)][1] = f"{name}: {value}".translate(_WRITTEN) + "\\n"
    return header[:start] + "".join(part for field in fields for part in field) + header[end:]
