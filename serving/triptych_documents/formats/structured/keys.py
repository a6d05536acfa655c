"""Selection of the strings of a JSON or YAML document to translate: by path, else by appearance."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from triptych_documents.errors import OptionError
from triptych_documents.findings import Finding, FindingKind, Severity
from triptych_documents.format import ReadOptions
from triptych_documents.formats.shared.text_document import TextDocument

MAX_SHOWN = 300  # characters of a path: a name may be as long as the document and contain all of its values
_DOT = re.compile(r"(?<!\\)\.")
_LETTER = r"[^\W\d_]"
_MARKUP = re.compile(r"<[^<>]*>|\{[^{}]*\}|%(?:\([^()]*\))?[a-zA-Z@]")
_MACHINE = re.compile(r"[a-z][A-Z][a-z]|://|@|^[A-Za-z]{2}-[A-Za-z]{2}$")  # camelCase, addresses, en-US
_WORD = re.compile(
    rf"[^\w/\\#$@&*=+~^|<>`.-]*(?:{_LETTER}\.)*{_LETTER}['’-]?{_LETTER}+(?:['’-]{_LETTER}+)*(?:\((?:e?s|en|e)\))?"  # item(s)
    r"[^\w/\\#$@&*=+~^|<>`-]*"
)
_IDEOGRAPHS = re.compile(r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\ud7ff\uf900-\ufaff]")  # no spaces between words


class KeySelection:
    r"""Selection by `keys` and `skip_keys`.

    A pattern is a path: names of members or list indices joined by dots (`\.` is a dot inside of a name); `*` matches any
    characters of one name, `**` any number of names. It selects the value and everything inside.

    Raises:
        OptionError: a pattern has an empty name.
    """

    def __init__(self, options: ReadOptions) -> None:
        keys = [_pattern("keys", key) for key in options.keys]
        skip = [_pattern("skip_keys", key) for key in options.skip_keys]
        self._given = options.keys
        self.root = KeyPath("", None, _started(keys), _started(skip))

    def checked(self, document: TextDocument) -> TextDocument:
        """Add a finding to a document in which `keys` select nothing."""
        if not self._given or document.units:
            return document
        message = f"no text is selected by {', '.join(self._given)}; keys are paths such as title or items.*.text"
        return replace(document, findings=[Finding(FindingKind.FORMAT, Severity.WARNING, "", message)])


class PatternMatch:
    """Progress of matching patterns along a path, so that each value costs only its last name and the patterns."""

    __slots__ = ("_patterns", "_places", "whole")

    def __init__(self, patterns: Sequence["Pattern"], places: frozenset[tuple[int, int]]) -> None:
        self._patterns, self._places = patterns, places
        self.whole = any(place == len(patterns[number]) for number, place in places)  # a pattern is complete

    def within(self, name: str) -> "PatternMatch":
        if self.whole or not self._places:
            return self
        found: set[tuple[int, int]] = set()
        for number, place in self._places:
            glob = self._patterns[number][place]
            if glob is None:
                found.update(_closed(self._patterns, number, place))
            elif glob.fullmatch(name):
                found.update(_closed(self._patterns, number, place + 1))
        return PatternMatch(self._patterns, frozenset(found))


class KeyPath:
    """Path of a value, and its selection."""

    __slots__ = ("_above", "_is_metadata", "_keys", "_name", "_skip")

    def __init__(self, name: str, above: "KeyPath | None", keys: PatternMatch | None, skip: PatternMatch | None) -> None:
        self._name, self._above, self._keys, self._skip = name, above, keys, skip
        self._is_metadata: bool = _is_metadata(name) or (above is not None and above._is_metadata)

    def within(self, name: str) -> "KeyPath":
        return KeyPath(name, self, self._keys and self._keys.within(name), self._skip and self._skip.within(name))

    def takes(self, text: str) -> bool:
        """Return whether this string is translated. Without `keys`, strings that look like text and are no metadata are."""
        if self._skip is not None and self._skip.whole:
            return False
        if self._keys is not None:
            return self._keys.whole and bool(text.strip())
        return not self._is_metadata and is_text(text)

    def shown(self) -> str:
        """Return the path as in Unit.where: the pattern that selects this value only; the end of it if long."""
        names: list[str] = []
        trail, length = self, 0
        while trail._above is not None and length <= MAX_SHOWN:
            names.append(trail._name[-MAX_SHOWN - 1 :].replace(".", "\\."))
            length += len(names[-1]) + 1
            trail = trail._above
        path = ".".join(reversed(names))
        path = path if length <= MAX_SHOWN else f"...{path[-MAX_SHOWN:]}"
        return path.encode(errors="replace").decode()  # a name may have a lone surrogate, which cannot be encoded


Pattern = tuple[re.Pattern[str] | None, ...]  # of single names; None: any number of names


def _pattern(field: str, pattern: str) -> Pattern:
    names = _DOT.split(pattern)
    if not all(names):
        raise OptionError(field, f"{pattern!r} has an empty name; join names with single dots, as in messages.*.title")
    globs = [None if name == "**" else _glob(name.replace("\\.", ".")) for name in names]
    return tuple(glob for place, glob in enumerate(globs) if glob is not None or place == 0 or globs[place - 1] is not None)


def _started(patterns: Sequence[Pattern]) -> PatternMatch | None:
    places = frozenset(place for number in range(len(patterns)) for place in _closed(patterns, number, 0))
    return PatternMatch(patterns, places) if patterns else None


def _closed(patterns: Sequence[Pattern], number: int, place: int) -> Iterable[tuple[int, int]]:
    """Yield this position, and the next one if it may be skipped."""
    yield number, place
    if place < len(patterns[number]) and patterns[number][place] is None:
        yield number, place + 1


def _glob(name: str) -> re.Pattern[str]:
    """Match each part after the first where it comes first, which finds a match if there is one, in linear time."""
    first, *middle = map(re.escape, name.split("*"))
    last = f".*{middle.pop()}" if middle else ""
    return re.compile(first + "".join(f"(?>.*?{part})" for part in middle) + last, re.DOTALL)


def _is_metadata(name: str) -> bool:
    """Return whether a member describes others, in Flutter's ARB (`@title`, `@@locale`) and in JSON-LD (`@type`)."""
    return name.startswith("@") and name not in ("@graph", "@value")


def is_text(text: str) -> bool:
    """Return whether a string looks like text for readers.

    It needs a word: two or more letters between spaces or punctuation. Names, paths, addresses, dates, colours, numbers and
    identifiers with digits, underscores, dots, two hyphens or camelCase are no words. Placeholders and tags are ignored.
    """
    words = _MARKUP.sub(" ", text).split()
    if any(_IDEOGRAPHS.search(word) and "://" not in word for word in words):
        return True
    if len(words) == 1 and (_MACHINE.search(words[0]) or _has_hyphens(words[0])):
        return False
    return any(_WORD.fullmatch(word) for word in words)


def _has_hyphens(word: str) -> bool:
    """Return whether a word has two or more hyphens with something between them and at both ends."""
    first = word.find("-", 1)
    return first > 0 and 0 < word.find("-", first + 2) < len(word) - 1
