"""BERT's encoder and heads."""

import pytest
import torch

from triptych_training.checkpoints.encoder import make_bert as make_head
from triptych_training.models.bert import (
    DEVIATION,
    BertForPretraining,
    BertForQuestionAnswering,
    BertForSequenceClassification,
    BertForTokenClassification,
)
from triptych_training.models.deberta import DebertaConfig
from triptych_training.models.modernbert import ModernBertConfig

from ..toy_text import SHAPE, make_bert, stir
from .test_deberta import SHAPE as DEBERTA
from .test_modernbert import SHAPE as MODERNBERT

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
    model = BertForQuestionAnswering(SHAPE).eval()
    stir(model)
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


@pytest.mark.parametrize("shape", [DEBERTA, MODERNBERT], ids=["DeBERTa", "ModernBERT"])
def test_heads_accept_other_encoders(shape: DebertaConfig | ModernBertConfig) -> None:
    logits, follows = BertForPretraining(shape, next_sentence=False)(IDS, SEGMENTS, torch.tensor([1, 5]))
    assert (logits.shape, follows) == ((2, 50), None)
    assert BertForTokenClassification(shape, 4)(IDS, SEGMENTS).shape == (2, 7, 4)
    assert BertForQuestionAnswering(shape)(IDS, SEGMENTS)[0].shape == (2, 7)
    assert BertForSequenceClassification(shape, 3)(IDS, SEGMENTS).shape == (2, 3)


def test_segments_and_labels_of_every_kind() -> None:
    for segments in (0, 1):
        bert = make_bert(segments=segments).bert
        torch.testing.assert_close(bert(IDS, SEGMENTS), bert(IDS, torch.zeros_like(SEGMENTS)))
    assert "embedding.segments.weight" not in make_bert(segments=0).bert.state_dict()
    logits = torch.tensor([[0.0, 2.0]])
    torch.testing.assert_close(BertForSequenceClassification(SHAPE, 2).probabilities(logits).sum(-1), torch.ones(1))
    independent = BertForSequenceClassification(SHAPE, 2, independent=True).probabilities(logits)
    torch.testing.assert_close(independent, torch.tensor([[0.5, 0.880797]]))
