"""Hugging Face tokenizers, configured for serving: a thread per CPU, no truncation, special tokens in texts are text."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from triptych_serving.errors import BundleError
from triptych_serving.runtime.cpu_info import usable_cpus

# Rust's thread pool uses the host's core count by default; the variable is read when it first runs.
os.environ.setdefault("RAYON_NUM_THREADS", str(usable_cpus()))
os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")

from numpy.typing import NDArray
from tokenizers import Encoding, Tokenizer

__all__ = [
    "Encoding",
    "KeptEncoding",
    "Tokenizer",
    "decode_rows",
    "encode_inputs",
    "is_unicode",
    "make_tokenizer",
    "read_tokenizer",
]

# Characters of an input, or tokens of a row, that take less time than waiting for the GIL, which engines hold between steps:
# a sentence takes 15 us, and took 270 us in a busy server when the GIL was released for it.
SHORT = 256


def read_tokenizer(path: Path) -> Tokenizer:
    """Read a `tokenizer.json`. Raises BundleError: the file is not a tokenizer."""
    try:
        return make_tokenizer(path.read_text(encoding="utf-8"))
    except Exception as error:  # tokenizers raises bare Exception
        raise BundleError(path, [f"not a tokenizer: {error}"]) from error


def make_tokenizer(content: str) -> Tokenizer:
    """Create a tokenizer from the content of a `tokenizer.json`."""
    tokenizer: Tokenizer = Tokenizer.from_str(content)
    tokenizer.encode_special_tokens = True  # a special token in a caller's text is text
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def encode_inputs(tokenizer: Tokenizer, inputs: Sequence[Any], offsets: bool = False, **options: Any) -> list[Encoding]:
    """Encode texts, or pairs of texts. Releases the GIL, except for a single short input.

    Args:
        offsets: True if the encodings' offsets are needed; without them encoding is twice as fast.
        options: of `Tokenizer.encode`.
    """
    if len(inputs) == 1:
        parts = (inputs[0],) if isinstance(inputs[0], str) else inputs[0]
        if sum(map(len, parts)) <= SHORT:
            return [tokenizer.encode(*parts, **options)]
    encode = tokenizer.encode_batch if offsets else tokenizer.encode_batch_fast
    encodings: list[Encoding] = encode(inputs, **options)
    return encodings


def decode_rows(tokenizer: Tokenizer, rows: Sequence[Sequence[int]]) -> list[str]:
    """Decode rows of ids. Releases the GIL, except for a single short row."""
    ids = [list(row) for row in rows]
    short = len(ids) == 1 and len(ids[0]) <= SHORT
    texts: list[str] = [tokenizer.decode(ids[0])] if short else tokenizer.decode_batch(ids)
    return texts


class KeptEncoding:
    """The part of an encoding that results need, with the same names: arrays of numbers, which take a fifth of its memory."""

    __slots__ = ("_offsets", "_parts", "_special", "_words", "ids", "type_ids")

    def __init__(self, encoding: Encoding) -> None:
        self.ids = np.array(encoding.ids, np.int32)
        self.type_ids = np.array(encoding.type_ids, np.int32)
        self._offsets = np.array(encoding.offsets, np.int32)
        self._special = np.array(encoding.special_tokens_mask, np.int8)
        self._words = _optional(encoding.word_ids)
        self._parts = _optional(encoding.sequence_ids)

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def offsets(self) -> list[tuple[int, int]]:
        return [(start, end) for start, end in self._offsets.tolist()]

    @property
    def special_tokens_mask(self) -> list[int]:
        special: list[int] = self._special.tolist()
        return special

    @property
    def word_ids(self) -> list[int | None]:
        return [None if word < 0 else word for word in self._words.tolist()]

    @property
    def sequence_ids(self) -> list[int | None]:
        """The part of the input that each token is from; None for [CLS] and [SEP]."""
        return [None if part < 0 else part for part in self._parts.tolist()]


def _optional(numbers: list[int | None]) -> NDArray[np.int32]:
    return np.array([-1 if number is None else number for number in numbers], np.int32)


def is_unicode(text: str) -> bool:
    """Return False if the text has a lone surrogate, which tokenizers reject."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
