"""Checkpoint folders of Word2Vec: config.json, model.safetensors with both tables, and tokenizer.json."""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from triptych_training.checkpoints.encoder import BertCheckpoint
from triptych_training.checkpoints.folder import CONFIG, TOKENIZER, Config, load_folder, make_member, save_weights, write_config
from triptych_training.data.tokenizer import save_tokenizer
from triptych_training.models.word2vec import PAD, StaticEmbedding, Word2Vec, Word2VecConfig

WORD2VEC = "triptych-word2vec"


def save_word_vectors(model: Word2Vec, tokenizer: Tokenizer, provenance: Mapping[str, Any], folder: Path) -> None:
    """Write `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    write_config(folder / CONFIG, WORD2VEC, {"word2vec": asdict(model.config), "provenance": provenance})
    save_tokenizer(tokenizer, folder / TOKENIZER)
    save_weights(model, folder)


def load_word_vectors(folder: Path) -> BertCheckpoint:
    """Read the input vectors of a trained Word2Vec as an embedding model.

    Raises:
        CheckpointError: files are missing or damaged, or weights and configuration disagree; lists all faults.
    """

    def make_model(config: Config) -> Word2Vec:
        return make_member(folder / CONFIG, "word2vec", lambda: Word2Vec(Word2VecConfig(**config["word2vec"])))

    config, model, parts = load_folder(folder, WORD2VEC, {"word2vec": dict}, make_model, {})
    static = StaticEmbedding(model.inputs.weight.detach(), PAD).eval()
    return BertCheckpoint(static, parts["tokenizer"], provenance=config.get("provenance", {}), family=WORD2VEC)
