"""BERT's encoder and heads, and its relatives; tests/parity compares positions and distances of these with transformers."""

from dataclasses import replace

import pytest
import torch

from triptych_training.checkpoints.encoder import make_bert as make_head
from triptych_training.models.bert import (
    DEVIATION,
    BertConfig,
    BertForPretraining,
    BertForQuestionAnswering,
    BertForSequenceClassification,
    BertForTokenClassification,
)
from triptych_training.models.deberta import DebertaConfig
from triptych_training.models.modernbert import ModernBert, ModernBertConfig

from ....fixtures.noise import stir
from ..toy_text import SHAPE, make_bert

DEBERTA = DebertaConfig(50, 16, 2, 24, 2, 32, position_buckets=8, max_distance=32, embedding_dim=12, mask_id=4)
MODERNBERT = ModernBertConfig(50, 16, 2, 24, 3, 32, (0,), 2, pad_id=0, cls_id=2, sep_id=3, mask_id=4)
IDS = torch.tensor([[2, 9, 12, 7, 3, 0, 0], [2, 8, 3, 20, 21, 22, 3]])
SEGMENTS = torch.tensor([[0, 0, 0, 0, 0, 0, 0], [0, 0, 0, 1, 1, 1, 1]])
LENGTH = 5  # of the first row


def test_only_the_requested_positions_are_projected() -> None:
    model = make_bert()
    every, _ = model(IDS, SEGMENTS, torch.arange(IDS.numel()))
    some, _ = model(IDS, SEGMENTS, torch.tensor([1, 3, 11]))
    assert some.shape == (3, SHAPE.vocabulary_size)
    torch.testing.assert_close(some, every[[1, 3, 11]])
    none, follows = model(IDS, SEGMENTS, torch.tensor([], dtype=torch.long))
    assert none.shape == (0, SHAPE.vocabulary_size)
    assert follows.shape == (2, 2)


def test_output_projection_and_embedding_share_one_matrix() -> None:
    model = BertForPretraining(SHAPE)
    tokens = model.bert.embedding.tokens.weight
    assert model.masked_token.projection.weight is tokens
    assert sum(parameter is tokens for parameter in model.parameters()) == 1
    model(IDS, SEGMENTS, torch.tensor([1]))[0].sum().backward()
    assert tokens.grad is not None
    assert bool((tokens.grad[40] != 0).any())  # a token that does not occur in the input


def test_an_answer_never_starts_or_ends_in_padding() -> None:
    model = stir(BertForQuestionAnswering(SHAPE))
    for logits in model(IDS, SEGMENTS):
        assert logits.shape == (2, 7)
        assert logits[0, LENGTH:].tolist() == [-float("inf")] * 2
        assert bool(logits[0, :LENGTH].isfinite().all())
        assert bool(logits[1].isfinite().all())


@pytest.mark.parametrize("head", ["pretraining", "text-classification", "token-classification", "question-answering"])
def test_initial_weights_are_small_and_positions_are_sinusoids(head: str) -> None:
    model = make_head(head, SHAPE, 3)
    weights = model.bert.embedding.state_dict()
    assert float(weights["tokens.weight"][5:].std()) == pytest.approx(DEVIATION, rel=0.1)
    positions = weights["positions.weight"]
    assert float(positions.square().mean().sqrt()) == pytest.approx(DEVIATION, rel=0.01)
    near, far = positions[10] @ positions[11], positions[10] @ positions[40]
    assert near > far
    assert all(not bool(tensor.any()) for name, tensor in model.named_parameters() if name.endswith("bias"))


@pytest.mark.parametrize("shape", [SHAPE, DEBERTA, MODERNBERT], ids=["BERT", "DeBERTa", "ModernBERT"])
def test_padding_is_invisible(shape: BertConfig | DebertaConfig | ModernBertConfig) -> None:
    model = BertForTokenClassification(shape, 4).eval()
    whole, alone = model(IDS, SEGMENTS), model(IDS[:1, :LENGTH], SEGMENTS[:1, :LENGTH])
    torch.testing.assert_close(whole[:1, :LENGTH], alone)


def test_modernbert_classifies_by_the_mean_or_the_first_token() -> None:
    mean, first = (BertForSequenceClassification(replace(MODERNBERT, pooling=kind), 3).eval() for kind in ("mean", "cls"))
    first.load_state_dict(mean.state_dict())
    assert not torch.allclose(mean(IDS, SEGMENTS), first(IDS, SEGMENTS), atol=1e-6)
    torch.testing.assert_close(mean(IDS, SEGMENTS)[:1], mean(IDS[:1, :LENGTH], SEGMENTS[:1, :LENGTH]))


def test_modernbert_s_parameters_follow_the_configuration() -> None:
    names = ModernBert(MODERNBERT).state_dict()
    assert not any("sines" in name or name.endswith("bias") for name in names)
    biased = replace(MODERNBERT, attention_bias=True, norm_bias=True)
    found = {name.removeprefix("layers.1.") for name, _ in ModernBert(biased).named_parameters() if name.endswith("bias")}
    assert {"attention.output.bias", "feedforward_residual.norm.bias", "norm.bias"} <= found
    assert "feedforward.expand.bias" not in found


def test_segments_and_labels_of_every_kind() -> None:
    for segments in (0, 1):
        bert = make_bert(segments=segments).bert
        torch.testing.assert_close(bert(IDS, SEGMENTS), bert(IDS, torch.zeros_like(SEGMENTS)))
    assert "embedding.segments.weight" not in make_bert(segments=0).bert.state_dict()
    logits = torch.tensor([[0.0, 2.0]])
    torch.testing.assert_close(BertForSequenceClassification(SHAPE, 2).probabilities(logits).sum(-1), torch.ones(1))
    independent = BertForSequenceClassification(SHAPE, 2, independent=True).probabilities(logits)
    torch.testing.assert_close(independent, torch.tensor([[0.5, 0.880797]]))
