"""Reference beam search: against enumeration, against greedy search, and on models with known probabilities."""

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from triptych_training.decoding.greedy import greedy
from triptych_training.models.transformer import DecoderLayer, Transformer, TransformerConfig

from ..unit.training.toy import SHAPE, make_ids, make_model
from .beam_search import BeamOptions, Candidate, beam_search, coverage

START, END, A, B, C = 1, 2, 3, 4, 5
Table = Mapping[int, Mapping[int, float]]


def make_bigrams(table: Table, size: int = 6) -> Transformer:
    """Build a model whose logits after a token are logarithms of the numbers in `table` (probabilities if they sum to 1)."""
    model = Transformer(TransformerConfig(size, size, 1, 8, 1, 1, norm="pre", max_positions=16, tie_embeddings=False)).eval()
    weights = torch.full((size, size), 1e-6)
    for last, following in table.items():
        for token, probability in following.items():
            weights[token, last] = probability
    with torch.no_grad():
        for layer in model.decoder.layers:
            for parameter in layer.parameters():
                parameter.zero_()
        model.decoder.norm = nn.Identity()
        model.decoder.embedding.positions.weight.zero_()
        model.decoder.embedding.tokens.weight.copy_(torch.eye(size) / model.decoder.embedding.scale)
        model.projection.weight.copy_(weights.log())
    return model


def search(model: Transformer, prefix: Sequence[int] = (), **options: Any) -> list[Candidate]:
    [found] = beam_search(model, [[A, END]], BeamOptions(**options), [list(prefix)])
    return found


def texts(found: Sequence[Candidate]) -> list[tuple[int, ...]]:
    return [candidate.tokens for candidate in found]


@torch.inference_mode()
def enumerate_all(model: Transformer, source: list[int], length: int, penalty: float) -> list[tuple[float, tuple[int, ...]]]:
    """Return score and tokens of every translation of at most `length` steps, best first."""
    size, scored = model.config.vocabulary_size, []
    for steps in range(1, length + 1):
        free = [token for token in range(size) if token != END]
        lasts = range(size) if steps == length else [END]
        for tokens in itertools.product(*[free] * (steps - 1), lasts):
            logits = model(torch.tensor([source]), torch.tensor([[START, *tokens[:-1]]]))[0].double()
            total = float(logits.log_softmax(-1).gather(1, torch.tensor(tokens)[:, None]).sum())
            scored.append((total / steps**penalty, tokens[: -1 if tokens[-1] == END else None]))
    return sorted(scored, reverse=True)


@pytest.mark.parametrize("penalty", [0.6, 1.0, 2.0])
def test_a_beam_wide_enough_finds_the_best_of_all_translations(penalty: float) -> None:
    model, source = make_model(vocabulary_size=6), [5, 3, END]
    everything = enumerate_all(model, source, 3, penalty)
    options = BeamOptions(300, num_hypotheses=100, length_penalty=penalty, max_length=3)
    [found] = beam_search(model, [source], options)
    assert texts(found) == [tokens for _, tokens in everything[:100]]
    assert [candidate.score for candidate in found] == pytest.approx([score for score, _ in everything[:100]], abs=1e-5)


def test_one_beam_is_greedy_search() -> None:
    model, sources = make_model(), make_ids(*range(2, 14))
    found = beam_search(model, sources, BeamOptions(1, max_length=12))
    assert [list(best.tokens) for [best] in found] == greedy(model, sources, 12)
    assert beam_search(make_model(), [], BeamOptions()) == []
    assert greedy(make_model(), [], 12) == []
    assert SHAPE.eos_id == END


@pytest.mark.parametrize("prefix", [[], [7, 9]], ids=["free", "prefix"])
def test_log_probabilities_are_those_of_the_teacher_forced_pass(prefix: list[int]) -> None:
    model, [source] = make_model(), make_ids(9)
    options = BeamOptions(4, num_hypotheses=4, max_length=8, length_penalty=0.7)
    [found] = beam_search(model, [source], options, [prefix])
    for candidate in found:
        steps = [*candidate.tokens, END] if candidate.ended else list(candidate.tokens)
        logits = model(torch.tensor([source]), torch.tensor([[START, *steps[:-1]]]))[0]
        expected = logits.log_softmax(-1).gather(1, torch.tensor(steps)[:, None])[:, 0].tolist()
        assert candidate.log_probabilities == pytest.approx(expected, abs=1e-4)
        assert candidate.log_probability == pytest.approx(sum(expected), abs=1e-4)
        assert candidate.score == pytest.approx(sum(expected[len(prefix) :]) / len(steps) ** 0.7, abs=1e-4)
        assert list(candidate.tokens[: len(prefix)]) == prefix


def test_better_translations_and_eos_among_the_best_candidates() -> None:
    model = make_bigrams({START: {A: 0.6, B: 0.4}, A: {A: 0.4, B: 0.3, C: 0.3}, B: {END: 1.0}, C: {END: 1.0}})
    assert search(model, beam_size=1, max_length=3)[0].tokens == (A, A, A)
    best = search(model, beam_size=2, max_length=3, length_penalty=0.0)[0]
    assert best.tokens == (B,)
    assert best.log_probability == pytest.approx(math.log(0.4), abs=1e-4)
    model = make_bigrams({START: {A: 0.6, END: 0.4}, A: {END: 1.0}})
    assert texts(search(model, beam_size=1)) == [(A,)]
    assert texts(search(model, beam_size=2, num_hypotheses=2, length_penalty=0.0)) == [(A,), ()]


LATE = {START: {A: 0.5, B: 0.3, END: 0.2}, A: {END: 0.6, C: 0.4}, B: {END: 0.9, C: 0.1}, C: {END: 1.0}}


@pytest.mark.parametrize(
    ("patience", "expected"),
    [
        (0.5, [(A,)]),  # one finished hypothesis ends the search
        (1.0, [(A,), (B,)]),
        (1.5, [(A,), (B,), (A, C)]),
        (2.0, [(A,), (B,), (A, C), (B, C)]),
    ],
)
def test_patience_sets_how_many_hypotheses_are_finished(patience: float, expected: list[tuple[int, ...]]) -> None:
    count = len(expected)
    found = search(make_bigrams(LATE), beam_size=2, patience=patience, num_hypotheses=count, length_penalty=0.01)
    assert texts(found) == expected


def test_options() -> None:
    assert [BeamOptions(5, patience=p).enough for p in (0.5, 0.7, 1.0, 1.1, 1.29)] == [3, 4, 5, 6, 6]
    with pytest.raises(ValueError, match="num_hypotheses: 3 is above beam_size x patience, 2"):
        BeamOptions(4, num_hypotheses=3, patience=0.5)


def test_ends_of_the_search() -> None:
    model = make_bigrams(LATE)
    for patience in (1.0, 3.0):
        assert len(search(model, beam_size=3, patience=patience, length_penalty=0.0, num_hypotheses=1)) == 1
    longer = make_bigrams({START: {A: 0.6, END: 0.4}, A: {A: 0.9, END: 0.1}})
    # The empty translation ends at once but is not the best; `A A A ...` is, until its probability falls below.
    found = search(longer, beam_size=2, length_penalty=0.0, num_hypotheses=2, max_length=10)
    assert texts(found)[0] == ()
    assert found[0].score == pytest.approx(math.log(0.4), abs=1e-4)
    model = make_bigrams({START: {A: 0.6, B: 0.4}, A: {A: 0.8, END: 0.2}, B: {B: 0.9, END: 0.1}})
    found = search(model, beam_size=3, num_hypotheses=3, max_length=2)
    assert [(candidate.tokens, candidate.ended) for candidate in found] == [((A, A), False), ((B, B), False), ((A,), True)]
    assert [candidate.score for candidate in found] == pytest.approx(
        [math.log(0.6 * 0.8) / 2, math.log(0.4 * 0.9) / 2, math.log(0.6 * 0.2) / 2], abs=1e-4
    )
    model = make_bigrams({START: {A: 0.5, B: 0.5}, A: {END: 1.0}, B: {A: 0.25, END: 0.75}})
    for penalty in (1.0, 0.5, -1.0):
        by_tokens = {c.tokens: c for c in search(model, beam_size=3, num_hypotheses=3, length_penalty=penalty)}
        assert by_tokens[(A,)].score == pytest.approx(math.log(0.5) / 2**penalty, abs=1e-4)
        assert by_tokens[(B, A)].score == pytest.approx(math.log(0.125) / 3**penalty, abs=1e-4)


def test_a_prefix_is_kept_and_not_ranked() -> None:
    model = make_bigrams({START: {A: 0.99, B: 0.01}, A: {END: 1.0}, B: {END: 0.5, C: 0.5}, C: {C: 0.5, END: 0.5}})
    found = search(model, [B], beam_size=2, num_hypotheses=2, max_length=5)
    assert all(candidate.tokens[0] == B for candidate in found)
    assert found[0].score == pytest.approx(math.log(0.5) / 2, abs=1e-4)
    assert found[0].log_probability == pytest.approx(math.log(0.01 * 0.5), abs=1e-4)


@pytest.mark.parametrize("prefix", [[B, C], [B, C, C]])
def test_a_prefix_may_fill_the_whole_translation(prefix: list[int]) -> None:
    [only] = search(make_bigrams({}), prefix, beam_size=4, num_hypotheses=4, max_length=2)
    assert only.tokens == (B, C)
    assert not only.ended
    assert only.score == 0


def test_lengths_and_ngrams_are_limited() -> None:
    model = make_bigrams({token: {END: 0.9, A: 0.07, B: 0.03} for token in (START, A, B)})
    assert search(model, beam_size=2)[0].tokens == ()
    assert search(model, beam_size=2, min_length=3)[0].tokens == (A, A, A)
    assert search(model, [B], beam_size=2, min_length=3)[0].tokens == (B, A, A)
    model = make_bigrams({START: {A: 1.0}, A: {A: 0.5, B: 0.3, END: 0.2}, B: {A: 0.9, END: 0.1}})
    assert search(model, beam_size=1, max_length=6)[0].tokens == (A,) * 6
    assert search(model, beam_size=1, max_length=6, no_repeat_ngram_size=2)[0].tokens == (A, A, B, A)
    assert search(model, beam_size=1, max_length=6, no_repeat_ngram_size=1)[0].tokens == (A, B)


def test_the_repetition_penalty_changes_logits() -> None:
    table = {START: {A: 1.0}, A: {A: 0.5, B: 0.3, END: 0.2}}
    [best] = search(make_bigrams(table), beam_size=1, max_length=2, repetition_penalty=2.0)
    weights = {A: 0.5**2, B: 0.3, END: 0.2}  # a negative logit is multiplied
    assert best.tokens == (A, B)
    assert best.log_probabilities[1] == pytest.approx(math.log(0.3 / sum(weights.values())), abs=1e-4)
    # A positive logit is divided.
    model = make_bigrams({START: {A: 1.0}, A: {A: math.exp(3.0), B: math.exp(2.0)}})
    [best] = search(model, beam_size=1, max_length=2, repetition_penalty=2.0)
    assert best.tokens == (A, B)
    assert best.log_probabilities[1] == pytest.approx(2.0 - math.log(math.exp(1.5) + math.exp(2.0)), abs=1e-4)


def test_attention_is_that_of_the_last_layer_and_the_mean_over_heads() -> None:
    model, [source] = make_model(heads=1), make_ids(7)
    layer = model.decoder.layers[-1]
    assert isinstance(layer, DecoderLayer)
    [[best]] = beam_search(model, [source], BeamOptions(3, max_length=6))
    contexts: list[Tensor] = []
    layer.cross_attention.output.register_forward_pre_hook(lambda _, inputs: contexts.append(inputs[0]))
    steps = [START, *best.tokens][: len(best.attention)]
    with torch.inference_mode():
        memory = model.encoder(torch.tensor([source]), None)
        model.decoder(torch.tensor([steps]), memory, None)
        [context], (_, values) = contexts, layer.cross_attention.project_memory(memory)
    torch.testing.assert_close(torch.stack(best.attention) @ values[0, 0], context[0], atol=1e-5, rtol=0)
    model, [source] = make_model(heads=2), make_ids(7)
    [[best]] = beam_search(model, [source], BeamOptions(3, max_length=6))
    rows = torch.stack(best.attention)
    assert rows.shape == (len(best.log_probabilities), len(source))
    torch.testing.assert_close(rows.sum(1), torch.ones(len(rows)))


def test_coverage_is_added_to_the_score() -> None:
    rows = [torch.tensor([0.5, 0.25, 0.0, 0.25]), torch.tensor([0.7, 0.25, 0.0, 0.05])]
    assert coverage(rows) == pytest.approx(math.log(0.5) + math.log(0.3))
    model, sources = make_model(), make_ids(6, 9, 12)
    found = beam_search(model, sources, BeamOptions(4, num_hypotheses=4, max_length=10, coverage_penalty=0.4))
    for candidates in found:
        assert [c.score for c in candidates] == pytest.approx(
            [c.log_probability / len(c.log_probabilities) + 0.4 * coverage(c.attention) for c in candidates]
        )
        assert [c.score for c in candidates] == sorted((c.score for c in candidates), reverse=True)
    plain = beam_search(model, sources, BeamOptions(4, num_hypotheses=4, max_length=10))
    assert list(map(texts, plain)) != list(map(texts, found))
