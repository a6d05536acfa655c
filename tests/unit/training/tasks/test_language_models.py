"""Training of decoder-only models; test_elmo has that of ELMo."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from triptych_training.checkpoints.gpt import load_gpt_checkpoint
from triptych_training.data.documents import encode_documents
from triptych_training.data.tokenizer import END, train_gpt_tokenizer
from triptych_training.errors import CorpusError, RecipeError
from triptych_training.evaluation.metrics import next_token_metrics
from triptych_training.loop.recipe import GptRecipe
from triptych_training.models.gpt import GPT2, Gpt, GptConfig
from triptych_training.tasks.language_models import LanguageTask, PackedCorpus, pack, train_gpt

from ....fixtures.sentences import SENTENCES
from ..runs import records

SHAPE: dict[str, Any] = {"vocabulary_size": 1, "model_dim": 32, "heads": 4, "layers": 2, "feedforward_dim": 48}
MODERN: dict[str, Any] = {
    **{"kv_heads": 2, "qk_norm": True, "unrotated_layers": (1,), "window": 8, "window_layers": (0,), "local_theta": 50.0},
    **{"attention_scale": 0.5, "output_norm": True, "embedding_scale": 2.0, "late_norm": True, "activation": "xielu"},
}
STYLES: dict[str, dict[str, Any]] = {"modern": MODERN, "gpt2": dict(GPT2)}


@pytest.fixture
def text(tmp_path: Path) -> str:
    path = tmp_path / "text.txt"
    path.write_text("\n\n".join("\n".join(SENTENCES[start : start + 4]) for start in range(0, 40, 4)), encoding="utf-8")
    return str(path)


def recipe(text: str, **options: Any) -> GptRecipe:
    defaults = {"vocabulary_size": 300, "sequence_length": 16, "batch_tokens": 128, "epochs": 1, "learning_rate": 2e-2}
    return GptRecipe(train=(text,), valid=(text,), **{**defaults, **options})


@pytest.mark.parametrize("style", STYLES)
def test_a_model_learns_and_is_read_again(style: str, text: str, tmp_path: Path) -> None:
    folder = train_gpt(recipe(text, optimizer="muon"), GptConfig(**SHAPE, **STYLES[style]), tmp_path / "run")
    losses = [record["valid_loss"] for record in records(tmp_path / "run") if record["kind"] == "epoch"]
    assert losses[-1] < 0.9 * np.log(300)
    checkpoint = load_gpt_checkpoint(folder)
    assert checkpoint.end == 0
    assert checkpoint.samples
    first = checkpoint.samples[0]
    assert checkpoint.tokenizer.decode(checkpoint.tokenizer.encode(first).ids) == first
    assert {name: getattr(checkpoint.model.config, name) for name in STYLES[style]} == STYLES[style]


def test_a_diverging_training_has_a_perplexity_that_is_a_number() -> None:
    assert all(np.isfinite(next_token_metrics(loss, 10)["perplexity"]) for loss in (1.0, 1e4, 1e9))


def test_documents_are_packed_with_an_end_between_them() -> None:
    tokenizer = train_gpt_tokenizer(SENTENCES, 300)
    packed = pack(encode_documents(tokenizer, iter([["A dog."], ["Two", "cats."]])), tokenizer.token_to_id(END))
    dog, cats = (tokenizer.encode(part).ids for part in ("A dog.", "Two"))
    assert packed.tolist() == [0, *dog, 0, *cats, *tokenizer.encode("cats.").ids, 0]


def test_an_epoch_reads_consecutive_rows_once_and_other_epochs_cut_elsewhere(text: str) -> None:
    tokens = np.arange(1_000, dtype=np.int32)
    shape = GptConfig(**{**SHAPE, "vocabulary_size": 1_000})
    task = LanguageTask(recipe(text), Gpt(shape), train_gpt_tokenizer(SENTENCES, 300), PackedCorpus(tokens, tokens, ()))
    firsts = []
    for epoch in range(3):
        rows = torch.cat([task.batch(indices, 0)[0] for indices in task.plan(epoch)])
        starts = sorted(rows[:, 0].tolist())
        assert rows.shape[1] == 17
        assert np.diff(starts).tolist() == [16] * (len(starts) - 1)
        assert starts[0] < 16
        assert starts[-1] + 16 >= 1_000 - 17
        firsts.append(starts[0])
    assert len(set(firsts)) > 1


@torch.inference_mode()
def test_shared_heads_compute_what_repeated_ones_do() -> None:
    few = Gpt(GptConfig(50, 32, heads=4, kv_heads=2, layers=1, feedforward_dim=16)).eval()
    many = Gpt(GptConfig(50, 32, heads=4, layers=1, feedforward_dim=16)).eval()
    weights = few.state_dict()
    name = "layers.0.attention.query_key_value.weight"
    query, key, value = weights[name].split((32, 16, 16))
    repeated = [torch.unflatten(each, 0, (2, 8)).repeat_interleave(2, 0).flatten(0, 1) for each in (key, value)]
    many.load_state_dict({**weights, name: torch.cat((query, *repeated))})
    ids = torch.randint(0, 50, (2, 9))
    torch.testing.assert_close(few(ids), many(ids))


@torch.inference_mode()
@pytest.mark.parametrize("window", [1, 3])
def test_a_window_hides_what_is_farther_away(window: int) -> None:
    model = Gpt(GptConfig(50, 32, heads=4, layers=1, feedforward_dim=16, window=window, window_layers=(0,))).eval()
    ids = torch.randint(0, 50, (1, 9))
    other = ids.clone()
    other[0, 8 - window] = (ids[0, 8 - window] + 1) % 50
    assert torch.equal(model(ids)[0, 8], model(other)[0, 8])
    other[0, 9 - window] = (ids[0, 9 - window] + 1) % 50
    assert not torch.equal(model(ids)[0, 8], model(other)[0, 8])


def test_texts_and_shapes_that_do_not_fit_are_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="sequence_length: 16 is above max_positions 8"):
        train_gpt(recipe(text), GptConfig(**SHAPE, max_positions=8), tmp_path / "one")
    options = {"sequence_length": 10_000, "batch_tokens": 10_000}
    with pytest.raises(CorpusError, match=r"train: the text has .* tokens, a row 10,001, sequence_length and one; add"):
        train_gpt(recipe(text, **options), GptConfig(**SHAPE, max_positions=10_000), tmp_path / "two")
    with pytest.raises(ValueError, match="kv_heads: 3 does not divide heads 4"):
        GptConfig(**SHAPE, kv_heads=3)
    with pytest.raises(ValueError, match="unrotated_layers: 2 is none of the 2 layers"):
        GptConfig(**SHAPE, unrotated_layers=[0, 2])
    with pytest.raises(ValueError, match="late_norm: with whole_norm, it is not supported"):
        GptConfig(**SHAPE, qk_norm=True, whole_norm=True, late_norm=True)


def test_a_training_can_begin_with_word_vectors(text: str, tmp_path: Path) -> None:
    (tmp_path / "vectors.txt").write_text("a " + "1 -1 " * 16 + "\n")
    options = {"embeddings": str(tmp_path / "vectors.txt"), "max_steps": 1, "learning_rate": 1e-9, "ema_decay": 0.5}
    folder = train_gpt(recipe(text, **options), GptConfig(**SHAPE, kv_heads=2), tmp_path / "run")
    checkpoint = load_gpt_checkpoint(folder)
    [row] = checkpoint.model.tokens.weight[checkpoint.tokenizer.encode("a").ids]
    assert torch.equal(row.sign(), torch.tensor([1.0, -1.0] * 16))
    assert '"tokens_with_given_vectors": ' in (tmp_path / "run/metrics.jsonl").read_text()
