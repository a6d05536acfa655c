"""Strings as PO files write them (GNU gettext manual, "The Format of PO Files")."""

import re
from collections.abc import Mapping

WIDTH = 79  # line width of gettext's tools
SIGNS = "_&"  # accelerator signs, unless the file declares its own
_ESCAPES = {"\\": "\\\\", "\t": "\\t", "\r": "\\r", "\n": "\\n", "\v": "\\v", "\b": "\\b", "\f": "\\f", '"': '\\"'}
_WRITTEN, _READ = str.maketrans(_ESCAPES), {escape: sign for sign, escape in _ESCAPES.items()}
_JOINT = re.compile(r'"\s*"')
_HEADER_FIELD = re.compile(rf"((?:{_JOINT.pattern})*)((?:[^\\]|\\[^n])*(?:\\n|\Z))")


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
