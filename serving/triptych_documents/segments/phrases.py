"""Finds words and phrases of a long list in a text, in time that grows with the text alone."""

import re
from collections.abc import Iterable, Iterator
from typing import Generic, TypeVar

_TOKEN = re.compile(r"\w+|[^\w\s]")

Entry = TypeVar("Entry")


class PhraseMatcher(Generic[Entry]):
    """Whole words; of several that begin at one place the longest, and the first that was given of equal ones.

    Args:
        entries: phrases and what they stand for.
        any_case: upper and lower case are the same.
    """

    def __init__(self, entries: Iterable[tuple[str, Entry]], *, any_case: bool) -> None:
        self._any_case = any_case
        self._by_first: dict[str, dict[int, dict[str, Entry]]] = {}  # by their first words, and by their lengths
        for phrase, entry in entries:
            if words := _TOKEN.search(key := self._key(phrase.strip())):
                self._by_first.setdefault(words[0], {}).setdefault(len(key), {}).setdefault(key, entry)
        self._by_first = {first: dict(sorted(same.items(), reverse=True)) for first, same in self._by_first.items()}

    def __bool__(self) -> bool:
        return bool(self._by_first)

    def find(self, text: str) -> Iterator[tuple[int, int, Entry]]:
        """Start, end and entry of each; they do not overlap."""
        key, end = self._key(text), 0
        for token in _TOKEN.finditer(key) if self._by_first else ():
            if token.start() < end or (candidates := self._by_first.get(token[0])) is None:
                continue
            for length, phrases in candidates.items():
                stop = token.start() + length
                phrase = key[token.start() : stop]
                if phrase in phrases and not _inside_word(key, stop):
                    yield token.start(), stop, phrases[phrase]
                    end = stop
                    break

    def _key(self, text: str) -> str:
        if not self._any_case:
            return text
        lower = text.lower()  # a few letters become two, and places would move
        return lower if len(lower) == len(text) else "".join(low if len(low := sign.lower()) == 1 else sign for sign in text)


def _inside_word(text: str, place: int) -> bool:
    return 0 < place < len(text) and _is_word(text[place - 1]) and _is_word(text[place])


def _is_word(sign: str) -> bool:
    return sign.isalnum() or sign == "_"
