"""Which strings of a JSON or YAML document are translated: by their paths, else by what they look like."""

import re
from collections.abc import Iterable

from triptych_documents.errors import OptionError
from triptych_documents.format import ReadOptions

Path = tuple[str, ...]

_DOT = re.compile(r"(?<!\\)\.")
_LETTER = r"[^\W\d_]"
_MARKUP = re.compile(r"<[^<>]*>|\{[^{}]*\}|%[a-zA-Z@]")
_MACHINE = re.compile(
    r"[a-z][A-Z][a-z]|\S+-\S+-\S|://|@|^[A-Za-z]{2}-[A-Za-z]{2}$"
)  # camelCase, many-hyphened-names, addresses, en-US
_WORD = re.compile(
    rf"[^\w/\\#$@&*=+~^|<>`.-]*(?:{_LETTER}\.)*{_LETTER}['’-]?{_LETTER}+(?:['’-]{_LETTER}+)*[^\w/\\#$@&*=+~^|<>`-]*"
)
_IDEOGRAPHS = re.compile(r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\ud7ff\uf900-\ufaff]")  # no spaces between words


class Choice:
    """What `keys` and `skip_keys` choose.

    A pattern is a path: members' names or list places, joined by dots (`\\.` is a dot within a name); `*` is any characters of
    one name, `**` any number of names. What it names is chosen with all that is within.

    Args:
        options: with both.

    Raises:
        OptionError: a pattern has an empty name.
    """

    def __init__(self, options: ReadOptions) -> None:
        self._keys = _patterns("keys", options.keys)
        self._skip = _patterns("skip_keys", options.skip_keys)

    def takes(self, path: Path, text: str) -> bool:
        """Whether this string is translated. Where no keys are given, what looks like text is."""
        named = "".join(f"{name}\0" for name in path)
        if self._skip is not None and self._skip.match(named):
            return False
        if self._keys is not None:
            return bool(text.strip()) and self._keys.match(named) is not None
        return is_text(text)


def _patterns(field: str, patterns: Iterable[str]) -> re.Pattern[str] | None:
    parts = [_pattern(field, pattern) for pattern in patterns]
    return re.compile("|".join(parts)) if parts else None


def _pattern(field: str, pattern: str) -> str:
    names = _DOT.split(pattern)
    if not all(names):
        raise OptionError(field, f"{pattern!r} has an empty name; names are joined by single dots, as in messages.*.title")
    return "".join(r"(?:[^\x00]*\x00)*" if name == "**" else _name(name) for name in names)


def _name(name: str) -> str:
    return re.escape(name.replace("\\.", ".")).replace(r"\*", r"[^\x00]*") + r"\x00"


def is_text(text: str) -> bool:
    """Whether a string looks like something that people read.

    It has a word: two letters or more between spaces or punctuation. Names, paths, addresses, dates, colours, numbers and
    identifiers with digits, underscores, dots, two hyphens or camelCase are no words. Placeholders and tags are not looked at.
    """
    words = _MARKUP.sub(" ", text).split()
    if len(words) == 1 and _MACHINE.search(words[0]):
        return False
    return any(_WORD.fullmatch(word) or (_IDEOGRAPHS.search(word) and "://" not in word) for word in words)


def shown_path(path: Path) -> str:
    """As Unit.where says it: the pattern that chooses this alone."""
    return ".".join(name.replace(".", "\\.") for name in path)
