"""Files of word vectors, and token tables that begin with them.

Source of the formats: https://code.google.com/archive/p/word2vec.
"""

import gzip
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch import nn

from triptych_training.errors import CorpusError, RecipeError

LONGEST_WORD = 1_000  # bytes; a longer one means that the file is something else
TOKEN_TABLES = ("tokens", "embedding", "inputs")  # names of the models' embeddings of tokens

Floats = NDArray[np.float32]
Binary = BinaryIO | gzip.GzipFile


@dataclass(frozen=True)
class WordVectors:
    """Different words and their vectors, `[words, E]`; `repeated` words were left out."""

    words: Sequence[str]
    table: Floats
    repeated: int


def read_word_vectors(path: Path) -> WordVectors:
    """Read word2vec's text or binary format, or GloVe's, which is the text format without its first line; maybe compressed.

    Of a word that occurs twice, the first vector is read, as gensim does.

    Raises:
        CorpusError: the file is damaged, or of another format.
    """
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            words, table = _read_words(file)
    except (OSError, EOFError, ValueError, MemoryError) as error:
        raise CorpusError(f"{path}: not a file of word vectors in word2vec's text or binary format ({error})") from error
    kept = sorted({word: number for number, word in reversed(list(enumerate(words)))}.values())
    if not np.isfinite(table[kept]).all():
        raise CorpusError(f"{path}: a vector has a number that is not finite")
    return WordVectors([words[number] for number in kept], table[kept], len(words) - len(kept))


def fill_token_tables(model: nn.Module, tokenizer: Tokenizer, path: Path) -> int:
    """Give the tokens that are words of a file its vectors, as widely spread as the model's own; return their number.

    Tokens are compared as text without the space that some include: as they are, or else both in lower case.

    Raises:
        CorpusError: the file cannot be read.
        RecipeError: its vectors have another length than the model's, or none of its words is a token.
    """
    vectors = read_word_vectors(path)
    places = {word: row for row, word in enumerate(vectors.words)}
    places = {word.lower(): row for word, row in reversed(places.items())} | places
    texts = [tokenizer.decode([token]).strip() for token in range(tokenizer.get_vocab_size())]  # empty for special tokens
    rows_of = [places.get(text, places.get(text.lower())) for text in texts]
    found = [(token, row) for token, row in enumerate(rows_of) if row is not None]
    if not found:
        raise RecipeError(f"embeddings: no word of {path} is a token of the model")
    tokens, rows = (list(part) for part in zip(*found, strict=True))
    given = torch.from_numpy(vectors.table[rows])
    for name, table in model.named_modules():
        if isinstance(table, nn.Embedding) and name.rpartition(".")[2] in TOKEN_TABLES:
            if table.embedding_dim != given.shape[1]:
                raise RecipeError(
                    f"embeddings: vectors of {path} have {given.shape[1]:,} numbers, the model {table.embedding_dim:,}"
                )
            with torch.no_grad():
                table.weight[tokens] = (given * (table.weight.std() / given.std().clamp(min=1e-20))).to(table.weight)
    return len(found)


def _read_words(file: Binary) -> tuple[list[str], Floats]:
    first = file.readline(1 << 20)
    header = first.split()
    if len(header) == 2:
        count, width = int(header[0]), int(header[1])
        line = file.readline(1 << 20)
        file.seek(len(first))
        binary = not _is_text(line, width, file.read(LONGEST_WORD))
        file.seek(len(first))
        if binary:
            return _read_binary(file, count, width)
    else:
        count, width = 0, len(header) - 1
        file.seek(0)
    if width < 1:
        raise ValueError("no vectors")
    words: list[str] = []
    rows: list[Floats] = []
    for number, line in enumerate(file, start=2 if count else 1):
        if len(parts := line.rstrip().rsplit(b" ", width)) != width + 1:
            raise ValueError(f"line {number}: {len(parts) - 1} numbers, expected {width}")
        words.append(parts[0].decode("utf-8", "replace"))
        rows.append(np.array(parts[1:], np.float32))
    if not rows or (count and len(rows) != count):
        raise ValueError(f"{len(rows):,} vectors, expected {count:,}" if count else "no vectors")
    return words, np.stack(rows)


def _is_text(line: bytes, width: int, start: bytes) -> bool:
    """Tell text from binary numbers after the first word, also if there are too few of them."""
    try:
        return len([float(number) for number in line.split()[-width:]]) == width
    except ValueError:
        return all(byte in b"0123456789+-.eE \n\r\t" for byte in start.split(b" ", 1)[-1][: 4 * width])


def _read_binary(file: Binary, count: int, width: int) -> tuple[list[str], Floats]:
    words: list[str] = []
    table = np.empty((count, width), np.float32)
    for row in range(count):
        words.append(b"".join(_word(file)).lstrip(b"\n").decode("utf-8", "replace"))
        data = file.read(4 * width)
        if len(data) != 4 * width:
            raise EOFError(f"it ends at vector {row + 1:,} of {count:,}")
        table[row] = np.frombuffer(data, "<f4")
    return words, table


def _word(file: Binary) -> Iterator[bytes]:
    for _ in range(LONGEST_WORD):
        if (byte := file.read(1)) == b" ":
            return
        if not byte:
            raise EOFError("it ends within a word")
        yield byte
    raise ValueError(f"a word has more than {LONGEST_WORD:,} bytes")
