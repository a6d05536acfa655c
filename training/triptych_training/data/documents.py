"""Documents for pre-training: one paragraph or sentence per line, a blank line between documents."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from triptych_text.languages import UNDETERMINED
from triptych_text.sentences import Splitter
from triptych_training.data.corpus import need_items, read_lines
from triptych_training.data.files import replacing
from triptych_training.errors import CorpusError

SPLITTER = Splitter(UNDETERMINED, lambda _: True)  # its rules for unknown languages cover the ends of sentences in all scripts
TOKENIZER_DOCUMENTS = 20_000  # the first documents are enough to learn a vocabulary
ENCODE_DOCUMENTS = 2_000  # documents tokenized in one call

Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Documents:
    """Encoded documents.

    ids        `[N]`, tokens of all documents
    sentences  `[S + 1]`, offsets into `ids`; the last one is its length
    documents  `[D + 1]`, offsets into `sentences`
    """

    ids: NDArray[np.int32]
    sentences: Integers
    documents: Integers

    def __len__(self) -> int:
        return len(self.documents) - 1


def read_documents(paths: Sequence[str]) -> Iterator[list[str]]:
    """Read the sentences of each document; raises CorpusError as `read_texts` does."""
    for text in read_texts(paths):
        yield [sentence for line in text.split("\n") for sentence in SPLITTER.split(line).marked_texts]


def read_texts(paths: Sequence[str]) -> Iterator[str]:
    """Read whole documents; files may be compressed (`.gz`, `.xz`).

    Raises:
        CorpusError: a file cannot be read, is not UTF-8 or contains no text.
    """
    for path in paths:
        lines = (line.strip() for _, line in read_lines(Path(path)))
        yield from need_items(("\n".join(block) for text, block in groupby(lines, bool) if text), f"{path}: contains no text")


def encode_documents(tokenizer: Tokenizer, documents: Iterator[list[str]]) -> Documents:
    """Tokenize without special tokens."""
    parts: list[NDArray[np.int32]] = []
    sentence_sizes: list[int] = []
    document_sizes: list[int] = []
    while batch := list(islice(documents, ENCODE_DOCUMENTS)):
        encodings = tokenizer.encode_batch_fast([text for document in batch for text in document], add_special_tokens=False)
        rows = [encoding.ids for encoding in encodings]
        parts.append(np.fromiter((token for row in rows for token in row), np.int32))
        sentence_sizes += map(len, rows)
        document_sizes += map(len, batch)
    ids = np.concatenate(parts) if parts else np.zeros(0, np.int32)
    return Documents(ids, _offsets(sentence_sizes), _offsets(document_sizes))


def save_documents(documents: Documents, path: Path) -> None:
    """Write a file in one move, for the other processes of a training and for a resumed one."""
    with replacing(path) as partial, open(partial, "wb") as file:  # numpy would append a suffix to a path
        np.savez(file, ids=documents.ids, sentences=documents.sentences, documents=documents.documents)


def load_documents(path: Path) -> Documents:
    """Read a file that `save_documents` wrote; raises CorpusError if the file is damaged."""
    try:
        with np.load(path) as arrays:
            return Documents(arrays["ids"], arrays["sentences"], arrays["documents"])
    except Exception as error:  # zipfile and numpy raise many types
        raise CorpusError(f"{path}: damaged ({error})") from error


def _offsets(sizes: Sequence[int]) -> Integers:
    return np.concatenate(([0], np.cumsum(sizes, dtype=np.int64)))
