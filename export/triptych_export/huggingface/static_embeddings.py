"""Tables of vectors: folders of Model2Vec and of sentence-transformers' StaticEmbedding, and word2vec's files.

Sources: https://github.com/MinishLab/model2vec, https://sbert.net/docs/package_reference/sentence_transformer/models.html and
https://code.google.com/archive/p/word2vec.
"""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch import Tensor

from triptych_export.errors import SourceError
from triptych_export.huggingface.folder import CONFIG, Folder
from triptych_training.checkpoints.encoder import BertCheckpoint
from triptych_training.checkpoints.folder import read_weights
from triptych_training.data.tokenizer import load_tokenizer
from triptych_training.data.words import add_boundary, word_tokenizer
from triptych_training.models.word2vec import StaticEmbedding

MODEL2VEC, STATIC, WORD2VEC = "model2vec", "sentence-transformers-static", "word2vec"
SUFFIXES = (".bin", ".vec", ".txt", ".gz")
LONGEST_WORD = 1_000  # bytes; a longer one means that the file is something else
MODULES = "modules.json"

Floats = NDArray[np.float32]
Binary = BinaryIO | gzip.GzipFile


def is_word_file(path: Path) -> bool:
    """Tell whether a path is a file of word vectors, by its name."""
    return path.is_file() and path.suffix in SUFFIXES


def static_kind(folder: Folder) -> str:
    """Return MODEL2VEC or STATIC; empty if the folder has no table of vectors."""
    if folder.has(CONFIG) and folder.model_type == MODEL2VEC:
        return MODEL2VEC
    return STATIC if any(kind == "StaticEmbedding" for kind, _ in _modules(folder)) else ""


def load_static_folder(folder: Folder) -> tuple[BertCheckpoint, Path]:
    """Read a folder of Model2Vec or sentence-transformers; also return the file with its weights.

    Raises:
        SourceError: files are missing or do not fit each other, or a setting is not supported.
        TrainingError: weights or tokenizer cannot be read.
    """
    kind, modules = static_kind(folder), _modules(folder)
    if kind == MODEL2VEC:
        place, normalize = folder.path, bool(folder.config.get("normalize", False))
        if (pooling := folder.config.get("pooling", "mean")) != "mean":
            raise folder.config_error(f"pooling: {pooling!r} is not supported; supported: mean")
    else:
        if foreign := [one for one, _ in modules if one not in ("StaticEmbedding", "Normalize")]:
            raise SourceError(f"{folder.path / MODULES}: {foreign[0]} is not supported beside StaticEmbedding")
        place, normalize = folder.path / dict(modules)["StaticEmbedding"], "Normalize" in dict(modules)
        prompts = folder.read_json("config_sentence_transformers.json") or {}
        if prompts.get("default_prompt_name"):
            raise SourceError(f"{folder.path}: default_prompt_name: {prompts['default_prompt_name']!r} is not supported here")
    weights = place / "model.safetensors"
    tokenizer = load_tokenizer(place / "tokenizer.json")
    table = _table(weights, tokenizer)
    ignored = [number] if kind == MODEL2VEC and (number := _unknown(tokenizer)) is not None else []
    pad = add_boundary(tokenizer)
    table = torch.cat((table[:pad], torch.zeros(max(1, pad + 1 - len(table)), table.shape[1])))
    model = StaticEmbedding(table, pad, ignored).eval()
    return BertCheckpoint(model, tokenizer, provenance={"architecture": kind}, family=kind, normalize=normalize), weights


def load_word_file(path: Path) -> BertCheckpoint:
    """Read word2vec's text or binary format, or GloVe's, which is the text format without its first line; maybe compressed.

    Of a word that occurs twice, the first vector is read, as gensim does. Texts are lower-cased if all words are.

    Raises:
        SourceError: the file is damaged, or of another format.
    """
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            words, table = _read_words(file)
    except (OSError, EOFError, ValueError, MemoryError) as error:
        raise SourceError(f"{path}: not a file of word vectors in word2vec's text or binary format ({error})") from error
    first = {word: number for number, word in reversed(list(enumerate(words)))}
    kept = sorted(first.values())
    if not np.isfinite(table[kept]).all():
        raise SourceError(f"{path}: a vector has a number that is not finite")
    lowercase = all(word == word.lower() for word in first)
    tokenizer = word_tokenizer([words[number] for number in kept], lowercase)
    rows = torch.from_numpy(np.concatenate((np.zeros((1, table.shape[1]), np.float32), table[kept])))
    provenance = {"architecture": WORD2VEC, "words": len(kept), "repeated_words_left_out": len(words) - len(kept)}
    return BertCheckpoint(StaticEmbedding(rows, 0).eval(), tokenizer, provenance=provenance, family=WORD2VEC)


def _modules(folder: Folder) -> list[tuple[str, str]]:
    """List kind and path of the modules of modules.json, if there is one."""
    if not folder.has(MODULES):
        return []
    try:
        listed = json.loads((folder.path / MODULES).read_text("utf-8"))
        return [(str(each["type"]).rpartition(".")[2], str(each["path"])) for each in listed]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SourceError(f"{folder.path / MODULES}: not a list of modules ({error})") from error


def _table(path: Path, tokenizer: Tokenizer) -> Tensor:
    """Read one vector for each token, with the factors and the shared rows of newer Model2Vec folders applied."""
    weights = read_weights(path)
    table = next((weights[name] for name in ("embedding.weight", "embeddings") if name in weights), None)
    if table is None or table.ndim != 2:
        raise SourceError(f"{path}: no table embedding.weight or embeddings; there are: {', '.join(weights)}")
    table = table.float()
    if "mapping" in weights:
        if int(weights["mapping"].max()) >= len(table):
            raise SourceError(f"{path}: mapping names row {int(weights['mapping'].max()):,} of {len(table):,}")
        table = table[weights["mapping"].long()]
    if "weights" in weights:
        if len(weights["weights"]) != len(table):
            raise SourceError(f"{path}: {len(weights['weights']):,} weights for {len(table):,} tokens")
        table = table * weights["weights"].float()[:, None]
    needed = max(tokenizer.get_vocab().values(), default=-1) + 1
    if len(table) < needed:
        raise SourceError(f"{path}: {len(table):,} vectors, the tokenizer has {needed:,} tokens")
    return table


def _unknown(tokenizer: Tokenizer) -> int | None:
    """Id of the unknown token, which Model2Vec leaves out."""
    model = json.loads(tokenizer.to_str())["model"]
    return tokenizer.token_to_id(model["unk_token"]) if model.get("unk_token") else model.get("unk_id")


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
