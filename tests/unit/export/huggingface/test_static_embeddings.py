"""Tables of vectors, from files and folders of other software to a served bundle."""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from triptych_export.exporter import export
from triptych_export.huggingface.folder import Folder
from triptych_export.huggingface.static_embeddings import load_static_folder, load_word_file
from triptych_export.options import ExportOptions
from triptych_serving.bundle.bundle import open_bundle
from triptych_serving.models.text.tasks import EMBEDDING_TASK, NEIGHBORS_TASK
from triptych_serving.models.text.text_model import TextModel
from triptych_training.data.words import word_tokenizer
from triptych_training.errors import CorpusError

from ....fixtures.json_files import write_json, write_modules

WORDS = ["king", "queen", "man", "river"]
TABLE = np.random.default_rng(0).normal(size=(4, 8)).astype(np.float32)


def write_text(folder: Path) -> Path:
    rows = (" ".join([word, *map(repr, row.tolist())]) for word, row in zip(WORDS, TABLE, strict=True))
    (path := folder / "vectors.txt").write_text("4 8\n" + "\n".join(rows) + "\n")
    return path


def write_binary(folder: Path) -> Path:
    rows = (word.encode() + b" " + row.tobytes() for word, row in zip(WORDS, TABLE, strict=True))
    (path := folder / "vectors.bin").write_bytes(b"4 8\n" + b"\n".join(rows) + b"\n")
    return path


def write_tables(folder: Path, name: str, unknown: float) -> None:
    folder.mkdir(exist_ok=True)
    word_tokenizer(WORDS, lowercase=True).save(str(folder / "tokenizer.json"))
    content = (folder / "tokenizer.json").read_text().replace("[BOUNDARY]", "[UNK]")
    (folder / "tokenizer.json").write_text(content)
    save_file(
        {name: torch.from_numpy(np.concatenate((np.full((1, 8), unknown, np.float32), TABLE)))}, folder / "model.safetensors"
    )


def write_model2vec(folder: Path) -> Path:
    write_tables(folder, "embeddings", 9.0)  # left out
    write_json(folder / "config.json", {"model_type": "model2vec", "normalize": True})
    return folder


def write_sentence_transformers(folder: Path) -> Path:
    write_tables(folder / "0_StaticEmbedding", "embedding.weight", 0.0)  # counts
    write_modules(folder, [("0_StaticEmbedding", "StaticEmbedding")])
    return folder


@pytest.mark.parametrize(
    ("write", "scale"),
    [(write_binary, 1.0), (write_model2vec, 1.0), (write_sentence_transformers, 2 / 3)],
    ids=["binary", "model2vec", "sentence-transformers"],
)
def test_a_text_is_the_mean_of_its_known_tokens(tmp_path: Path, write: Callable[[Path], Path], scale: float) -> None:
    path = write(tmp_path)
    loaded = load_word_file(path) if path.is_file() else load_static_folder(Folder(path))[0]
    assert loaded.normalize == (write is write_model2vec)
    assert loaded.tokenizer is not None
    known, unknown = loaded.tokenizer.encode_batch(["King zzz river", "zzz"])
    found = loaded.model(torch.tensor(known.ids))
    np.testing.assert_allclose(found, TABLE[[0, 3]].mean(0) * scale, rtol=1e-5, atol=1e-6)
    assert not loaded.model(torch.tensor(unknown.ids)).any()


def test_settings_of_sentence_transformers_are_read(tmp_path: Path) -> None:
    settings = {"truncate_dim": 2, "prompts": {"query": "river ", "document": ""}}
    write_json(write_sentence_transformers(tmp_path) / "config_sentence_transformers.json", settings)
    loaded = load_static_folder(Folder(tmp_path))[0]
    assert loaded.prompts == settings["prompts"]
    assert loaded.tokenizer is not None
    found = loaded.model(torch.tensor(loaded.tokenizer.encode("king").ids))
    np.testing.assert_allclose(found, TABLE[0, :2], rtol=1e-5, atol=1e-6)


def test_a_table_is_served_with_its_neighbours(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    path = write_model2vec(tmp_path / "source")
    bundle = export(path, ExportOptions(tmp_path / "models", name="words"), lambda _: None)
    with closing(TextModel("words", 1, open_bundle(bundle))) as model:
        first, unknown = model.run(EMBEDDING_TASK, ["King zzz river", "zzz"])
        [near] = model.run(NEIGHBORS_TASK, ["king -man river"])
    mean = TABLE[[0, 3]].mean(0)
    np.testing.assert_allclose(first.values, mean / np.linalg.norm(mean), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(unknown.values, 0)
    units = TABLE / np.linalg.norm(TABLE, axis=1, keepdims=True)
    query = units[0] - units[2] + units[3]
    words = {one.token_str: one.score for one in near.neighbors}
    assert words["queen"] == pytest.approx(units[1] @ query / np.linalg.norm(query), abs=1e-5)
    assert not {"king", "man", "river"} & words.keys()


def test_a_table_in_text_is_read_like_a_binary_one(tmp_path: Path) -> None:
    text, binary = load_word_file(write_text(tmp_path)), load_word_file(write_binary(tmp_path))
    assert text.tokenizer.get_vocab() == binary.tokenizer.get_vocab()
    assert {n: t.tolist() for n, t in text.model.state_dict().items()} == {
        n: t.tolist() for n, t in binary.model.state_dict().items()
    }


def test_few_short_numbers_are_not_taken_for_binary_ones(tmp_path: Path) -> None:
    (path := tmp_path / "vectors.txt").write_text("2 2\nking 1 0\nqueen 0.5 1\n")
    assert load_word_file(path).model(torch.tensor([1, 2])).tolist() == [0.75, 0.5]


@pytest.mark.parametrize(
    ("content", "problem"),
    [(b"2 3\nking 1 2 3\n", "1 vectors, expected 2"), (b"1 3\nking 1 2\n", "expected 3"), (b"", "no vectors")],
    ids=["fewer", "narrow", "empty"],
)
def test_damaged_files_of_words_are_refused(tmp_path: Path, content: bytes, problem: str) -> None:
    (path := tmp_path / "vectors.txt").write_bytes(content)
    with pytest.raises(CorpusError, match=problem):
        load_word_file(path)
