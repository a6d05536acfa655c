"""Which strings of a JSON or YAML document are translated: by their paths, else by what they look like."""

import re
from collections.abc import Iterable, Sequence

from triptych_documents.errors import OptionError
from triptych_documents.format import ReadOptions

MAX_SHOWN = 300  # characters of a path: a name may be as long as the document, and have all of its values in it
_DOT = re.compile(r"(?<!\\)\.")
_LETTER = r"[^\W\d_]"
_MARKUP = re.compile(r"<[^<>]*>|\{[^{}]*\}|%[a-zA-Z@]")
_MACHINE = re.compile(r"[a-z][A-Z][a-z]|://|@|^[A-Za-z]{2}-[A-Za-z]{2}$")  # camelCase, addresses, en-US
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
        keys, skip = _patterns("keys", options.keys), _patterns("skip_keys", options.skip_keys)
        self.root = Trail("", None, Reach(keys, _starts(keys)) if keys else None, Reach(skip, _starts(skip)) if skip else None)


class Reach:
    """How far patterns are matched at a path: the time for a value is that of its last name and of the patterns.

    Args:
        patterns: their names.
        places: of these the next ones, as pattern and place in it.
    """

    __slots__ = ("_patterns", "_places", "whole")

    def __init__(self, patterns: Sequence["Pattern"], places: frozenset[tuple[int, int]]) -> None:
        self._patterns, self._places = patterns, places
        self.whole = any(place == len(patterns[number]) for number, place in places)  # one of them has no more names

    def within(self, name: str) -> "Reach":
        """At a member or list place."""
        if self.whole or not self._places:
            return self
        found: set[tuple[int, int]] = set()
        for number, place in self._places:
            glob = self._patterns[number][place]
            if glob is None:
                found.update(_closed(self._patterns, number, place))
            elif _matches(glob, name):
                found.update(_closed(self._patterns, number, place + 1))
        return Reach(self._patterns, frozenset(found))


class Trail:
    """A value's path, and what the patterns say of it.

    Args:
        name: of the value in what it is in.
        above: what it is in.
        keys: how far they are matched here; None where there are none.
        skip: likewise.
    """

    __slots__ = ("_above", "_keys", "_name", "_skip")

    def __init__(self, name: str, above: "Trail | None", keys: Reach | None, skip: Reach | None) -> None:
        self._name, self._above, self._keys, self._skip = name, above, keys, skip

    def within(self, name: str) -> "Trail":
        """Of a member or list place."""
        return Trail(name, self, self._keys and self._keys.within(name), self._skip and self._skip.within(name))

    def takes(self, text: str) -> bool:
        """Whether this string is translated. Where no keys are given, what looks like text is."""
        if self._skip is not None and self._skip.whole:
            return False
        if self._keys is not None:
            return self._keys.whole and bool(text.strip())
        return is_text(text)

    def shown(self) -> str:
        """As Unit.where says it: the pattern that chooses this alone; its end, where it is long."""
        names: list[str] = []
        trail, length = self, 0
        while trail._above is not None and length <= MAX_SHOWN:
            names.append(trail._name[-MAX_SHOWN - 1 :].replace(".", "\\."))
            length += len(names[-1]) + 1
            trail = trail._above
        path = ".".join(reversed(names))
        path = path if length <= MAX_SHOWN else f"...{path[-MAX_SHOWN:]}"
        return path.encode(errors="replace").decode()  # a name may have half a surrogate pair, which nobody could write


Glob = tuple[str, ...]  # what stands between its stars
Pattern = tuple[Glob | None, ...]  # None: any number of names


def _patterns(field: str, patterns: Iterable[str]) -> tuple[Pattern, ...]:
    return tuple(_pattern(field, pattern) for pattern in patterns)


def _pattern(field: str, pattern: str) -> Pattern:
    names = _DOT.split(pattern)
    if not all(names):
        raise OptionError(field, f"{pattern!r} has an empty name; names are joined by single dots, as in messages.*.title")
    globs = [None if name == "**" else tuple(name.replace("\\.", ".").split("*")) for name in names]
    return tuple(glob for place, glob in enumerate(globs) if glob is not None or place == 0 or globs[place - 1] is not None)


def _starts(patterns: Sequence[Pattern]) -> frozenset[tuple[int, int]]:
    return frozenset(place for number in range(len(patterns)) for place in _closed(patterns, number, 0))


def _closed(patterns: Sequence[Pattern], number: int, place: int) -> Iterable[tuple[int, int]]:
    """This place, and the next where it may be passed over."""
    yield number, place
    if place < len(patterns[number]) and patterns[number][place] is None:
        yield number, place + 1


def _matches(glob: Glob, name: str) -> bool:
    """From left to right, each part where it comes first: no other way could match what this does not."""
    first, *middle = glob
    if not middle:
        return name == first
    *middle, last = middle
    at, end = len(first), len(name) - len(last)
    if end < at or not name.startswith(first) or not name.endswith(last):
        return False
    for part in middle:
        found = name.find(part, at, end)
        if found < 0:
            return False
        at = found + len(part)
    return True


def is_text(text: str) -> bool:
    """Whether a string looks like something that people read.

    It has a word: two letters or more between spaces or punctuation. Names, paths, addresses, dates, colours, numbers and
    identifiers with digits, underscores, dots, two hyphens or camelCase are no words. Placeholders and tags are not looked at.
    """
    words = _MARKUP.sub(" ", text).split()
    if len(words) == 1 and (_MACHINE.search(words[0]) or _has_hyphens(words[0])):
        return False
    return any(_WORD.fullmatch(word) or (_IDEOGRAPHS.search(word) and "://" not in word) for word in words)


def _has_hyphens(word: str) -> bool:
    """Two or more, with something between them and at both ends."""
    first = word.find("-", 1)
    return first > 0 and 0 < word.find("-", first + 2) < len(word) - 1
