"""Tables of vectors: folders of Model2Vec and of sentence-transformers' StaticEmbedding, and word2vec's files.

Sources: https://github.com/MinishLab/model2vec, https://sbert.net/docs/package_reference/sentence_transformer/models.html and
https://code.google.com/archive/p/word2vec.
"""

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor

from triptych_export.errors import SourceError
from triptych_export.huggingface.checkpoint.sentence_transformers import (
    MODULES,
    list_prompts,
    read_dimensions,
    read_modules,
    read_prompts,
)
from triptych_export.huggingface.folder import CONFIG, PICKLES, Folder
from triptych_training.checkpoints.encoder import TextCheckpoint
from triptych_training.checkpoints.folder import read_weights
from triptych_training.data.tokenizer import load_tokenizer
from triptych_training.data.word_vectors import read_word_vectors
from triptych_training.data.words import add_boundary, word_tokenizer
from triptych_training.models.word2vec import StaticEmbedding

MODEL2VEC, STATIC, WORD2VEC = "model2vec", "sentence-transformers-static", "word2vec"
SUFFIXES = (".bin", ".vec", ".txt", ".gz")


def is_word_file(path: Path) -> bool:
    """Tell whether a path is a file of word vectors, by its name; weights of PyTorch and CTranslate2 end in .bin, too."""
    converted = path.name == "model.bin" and any(path.parent.glob("*_vocabulary.*"))
    return path.is_file() and path.suffix in SUFFIXES and not converted and not any(map(path.match, PICKLES))


def static_kind(folder: Folder) -> str:
    """Return MODEL2VEC or STATIC; empty if the folder has no table of vectors."""
    if folder.has(CONFIG) and folder.model_type == MODEL2VEC:
        return MODEL2VEC
    return STATIC if any(kind == "StaticEmbedding" for kind, _ in read_modules(folder)) else ""


def load_static_folder(folder: Folder) -> tuple[TextCheckpoint, Path]:
    """Read a folder of Model2Vec or sentence-transformers; also return the file with its weights.

    Raises:
        SourceError: files are missing or do not fit each other, or a setting is not supported.
        TrainingError: weights or tokenizer cannot be read.
    """
    kind, modules = static_kind(folder), read_modules(folder)
    prompts: Mapping[str, str] = {}
    if kind == MODEL2VEC:
        place, normalize = folder.path, bool(folder.config.get("normalize", False))
        if (pooling := folder.config.get("pooling", "mean")) != "mean":
            raise folder.config_error(f"pooling: {pooling!r} is not supported; supported: mean")
    else:
        if foreign := [one for one, _ in modules if one not in ("StaticEmbedding", "Normalize")]:
            raise SourceError(f"{folder.path / MODULES}: {foreign[0]} is not supported beside StaticEmbedding")
        place, normalize = folder.path / dict(modules)["StaticEmbedding"], "Normalize" in dict(modules)
        default, prompts = read_prompts(folder)
        if default:
            raise SourceError(f"{folder.path}: default_prompt_name, of {default!r:.60}, is not supported here")
    weights = place / "model.safetensors"
    tokenizer = load_tokenizer(place / "tokenizer.json")
    table = _table(weights, tokenizer)[:, : read_dimensions(folder)]
    words = json.loads(tokenizer.to_str())["model"]
    unknown = tokenizer.token_to_id(words["unk_token"]) if words.get("unk_token") else words.get("unk_id")
    ignored = [unknown] if kind == MODEL2VEC and unknown is not None else []  # Model2Vec leaves it out
    pad = add_boundary(tokenizer)
    table = torch.cat((table[:pad], torch.zeros(max(1, pad + 1 - len(table)), table.shape[1])))
    model = StaticEmbedding(table, pad, ignored).eval()
    provenance = {"architecture": kind, **({"prompts": listed} if (listed := list_prompts(prompts)) else {})}
    made = TextCheckpoint(model, tokenizer, provenance=provenance, family=kind, normalize=normalize, prompts=prompts)
    return made, weights


def load_word_file(path: Path) -> TextCheckpoint:
    """Read a file of word vectors as an embedding model. Texts are lower-cased if all words are.

    Raises:
        CorpusError: the file is damaged, or of another format.
    """
    vectors = read_word_vectors(path)
    tokenizer = word_tokenizer(vectors.words, all(word == word.lower() for word in vectors.words))
    table = vectors.table
    rows = torch.from_numpy(np.concatenate((np.zeros((1, table.shape[1]), np.float32), table)))
    provenance = {"architecture": WORD2VEC, "words": len(vectors.words), "repeated_words_left_out": vectors.repeated}
    return TextCheckpoint(StaticEmbedding(rows, 0).eval(), tokenizer, provenance=provenance, family=WORD2VEC)


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
