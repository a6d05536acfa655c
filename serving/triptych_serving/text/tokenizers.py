"""Hugging Face tokenizers, configured for serving: a thread per CPU, no truncation, special tokens in texts are text."""

import os
from pathlib import Path

from triptych_serving.errors import BundleError
from triptych_serving.runtime.cpu_info import usable_cpus

# Rust's thread pool uses the host's core count by default; the variable is read when it first runs.
os.environ.setdefault("RAYON_NUM_THREADS", str(usable_cpus()))
os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")

from tokenizers import Encoding, Tokenizer

__all__ = ["Encoding", "Tokenizer", "is_unicode", "make_tokenizer", "read_tokenizer"]


def read_tokenizer(path: Path) -> Tokenizer:
    """Read a `tokenizer.json`.

    Raises:
        BundleError: the file is not a tokenizer.
    """
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


def is_unicode(text: str) -> bool:
    """Return False if the text has a lone surrogate, which tokenizers reject."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
