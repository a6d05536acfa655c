"""The vocabulary as bytes: how tokens appear in a translation, and which of them would complete a given text."""

import json
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from triptych_serving.text.tokenizers import Tokenizer

PATTERNS = 1024  # texts whose tokens are cached: some kilobytes each, at most a few bytes per token of the vocabulary

BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")  # a token for one byte of a character that the vocabulary lacks
CLOSERS = frozenset(".?!,")  # WordPiece's clean-up removes the space before these

Ids = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Pattern:
    """Sorted ids of the tokens that make one text occur."""

    within: Ids  # tokens that contain it
    within_first: Ids  # likewise at the start of a translation, where a leading space does not count
    after: tuple[tuple[bytes, Ids], ...]  # (beginning of the text, tokens that would complete it)


class Vocabulary:
    """Tokens as bytes. Thread-safe.

    Args:
        surfaces: the bytes of each id, including a space before a word; empty for tokens that are not part of a text.
        strips: texts are decoded without the space before their first word.
    """

    def __init__(self, surfaces: Sequence[bytes], strips: bool = True) -> None:
        self._surfaces, self.strips = surfaces, strips
        self._longest = max(map(len, surfaces), default=0)
        self._joined = b"".join(surfaces)
        self._ends = np.cumsum([len(surface) for surface in surfaces])
        order = sorted(range(len(surfaces)), key=surfaces.__getitem__)
        self._sorted = [surfaces[index] for index in order]
        self._order = np.array(order, np.int64)
        self.pattern = lru_cache(maxsize=PATTERNS)(self._compile)

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> "Vocabulary":
        """Build the vocabulary of a tokenizer from its decoder.

        Supports byte-level pieces, U+2581 for a space, byte fallback, WordPiece's `##`, BPE's end-of-word mark and whole words.
        """
        steps = _decoder_steps(tokenizer)
        added = tokenizer.get_added_tokens_decoder()
        pieces = tokenizer.get_vocab(with_added_tokens=True)
        surfaces = [b""] * (1 + max(pieces.values(), default=-1))
        for piece, index in pieces.items():
            if index not in added:
                surfaces[index] = _surface(piece, steps)
            elif not added[index].special:
                surfaces[index] = piece.encode()
        return cls(surfaces, _strips(steps))

    def bytes_of(self, token: int) -> bytes:
        """Return the bytes of a token; none if it is not part of a text."""
        return self._surfaces[token] if 0 <= token < len(self._surfaces) else b""

    def tail(self, history: Sequence[int], size: int, strips: bool = True) -> bytes | None:
        """Return at least the last `size` bytes of a text, or all; None if it is empty. `strips`: without its leading space."""
        parts: list[bytes] = []
        for token in reversed(history):
            if size <= 0:
                return b"".join(reversed(parts))
            if 0 <= token < len(self._surfaces):  # a model may have more ids than its tokenizer
                parts.append(self._surfaces[token])
                size -= len(parts[-1])
        whole = b"".join(reversed(parts))
        return (whole.removeprefix(b" ") if strips else whole) if whole else None

    def _compile(self, text: str) -> Pattern:
        """Find the tokens that would make `text`, which is not empty, occur; `pattern` caches the result."""
        wanted = text.encode()
        within = self._containing(wanted)
        first = [index for index in within.tolist() if wanted in self._surfaces[index].removeprefix(b" ")]
        sizes = range(max(1, len(wanted) - self._longest), len(wanted))
        splits = ((wanted[:size], self._starting_with(wanted[size:])) for size in sizes)
        after = tuple((head, ids) for head, ids in splits if len(ids))
        return Pattern(within, np.array(first, np.int64), after)

    def _containing(self, part: bytes) -> Ids:
        starts = np.array(list(_occurrences(part, self._joined)), np.int64)
        owners = np.searchsorted(self._ends, starts, side="right")
        return np.unique(owners[starts + len(part) <= self._ends[owners]]).astype(np.int64)

    def _starting_with(self, start: bytes) -> Ids:
        def cut(surface: bytes) -> bytes:
            return surface[: len(start)]

        low = bisect_left(self._sorted, start, key=cut)
        return np.sort(self._order[low : bisect_right(self._sorted, start, lo=low, key=cut)])


def _occurrences(part: bytes, whole: bytes) -> Iterator[int]:
    """Yield the positions of `part`, including overlapping ones."""
    start = whole.find(part)
    while start >= 0:
        yield start
        start = whole.find(part, start + 1)


def _decoder_steps(tokenizer: Tokenizer) -> dict[str, Mapping[str, Any]]:
    """Return the settings of the tokenizer's decoders by type, the first of each type."""
    if tokenizer.decoder is None:
        return {}
    settings = json.loads(tokenizer.decoder.__getstate__())
    return {step["type"]: step for step in reversed(settings.get("decoders", [settings]))}


def _strips(steps: Mapping[str, Mapping[str, Any]]) -> bool:
    """Return True if a text is decoded without the space before its first word."""
    if "Metaspace" in steps:
        return steps["Metaspace"].get("prepend_scheme") != "never"
    return "Strip" in steps or steps.keys().isdisjoint(("ByteLevel", "Replace"))


def _surface(piece: str, steps: Mapping[str, Mapping[str, Any]]) -> bytes:
    if "ByteFallback" in steps and (byte := BYTE.fullmatch(piece)):
        return bytes([int(byte[1], 16)])
    if "ByteLevel" in steps and all(letter in BYTES for letter in piece):
        return bytes(BYTES[letter] for letter in piece)
    if "WordPiece" in steps:
        return _word_piece(piece, steps["WordPiece"]).encode()
    if "Metaspace" in steps:
        piece = piece.replace(steps["Metaspace"]["replacement"], " ")
    if "Replace" in steps and "String" in steps["Replace"]["pattern"]:
        piece = piece.replace(steps["Replace"]["pattern"]["String"], steps["Replace"]["content"])
    if "BPEDecoder" in steps:
        piece = piece.replace(steps["BPEDecoder"]["suffix"], " ")
    return piece.encode() if steps else f" {piece}".encode()


def _word_piece(piece: str, settings: Mapping[str, Any]) -> str:
    if piece.startswith(settings["prefix"]):
        return piece.removeprefix(settings["prefix"])
    return piece if settings["cleanup"] and piece in CLOSERS else f" {piece}"


def _byte_alphabet() -> dict[str, int]:
    """Return GPT-2's letters for bytes: printable bytes map to themselves, the others to 256, 257, ..."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + place): byte for place, byte in enumerate(others)}


BYTES = _byte_alphabet()
