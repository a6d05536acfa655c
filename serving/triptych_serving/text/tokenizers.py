"""Hugging Face tokenizers, configured for serving: a thread per CPU, no truncation, special tokens in texts are text."""

import os
from pathlib import Path

import numpy as np

from triptych_serving.errors import BundleError
from triptych_serving.runtime.cpu_info import usable_cpus

# Rust's thread pool uses the host's core count by default; the variable is read when it first runs.
os.environ.setdefault("RAYON_NUM_THREADS", str(usable_cpus()))
os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")

from numpy.typing import NDArray
from tokenizers import Encoding, Tokenizer

__all__ = ["Encoding", "KeptEncoding", "Tokenizer", "is_unicode", "make_tokenizer", "read_tokenizer"]


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
