"""Hugging Face tokenizers as serving uses them: as many threads as there are CPUs, no truncation, a user's "</s>" is text."""

import os
from pathlib import Path

from triptych_serving.errors import BundleError
from triptych_serving.runtime.cpu_info import usable_cpus

# Rust's thread pool takes the host's core count unless told otherwise; read when it first runs.
os.environ.setdefault("RAYON_NUM_THREADS", str(usable_cpus()))
os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")

from tokenizers import Encoding, Tokenizer

__all__ = ["Encoding", "Tokenizer", "is_unicode", "make_tokenizer", "read_tokenizer"]


def read_tokenizer(path: Path) -> Tokenizer:
    """The tokenizer of a `tokenizer.json`.

    Raises:
        BundleError: the file is not a tokenizer.
    """
    try:
        return make_tokenizer(path.read_text(encoding="utf-8"))
    except Exception as error:  # tokenizers raises bare Exception
        raise BundleError(path, [f"not a tokenizer: {error}"]) from error


def make_tokenizer(content: str) -> Tokenizer:
    """The tokenizer of a `tokenizer.json`'s content."""
    tokenizer: Tokenizer = Tokenizer.from_str(content)
    tokenizer.encode_special_tokens = True  # where a user writes one, it is text
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def is_unicode(text: str) -> bool:
    """False where it has a lone surrogate, which tokenizers do not take."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
