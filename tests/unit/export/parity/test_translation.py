"""Token-by-token comparison that every export must pass."""

import copy

import pytest
import torch
from torch import nn

from triptych_export.errors import ParityError, SourceError
from triptych_export.parity.translation import (
    ParitySample,
    agreement,
    check_parity,
    find_ties,
    forced_agreement,
    make_framed_sample,
    make_sample,
)
from triptych_training.checkpoints.translation import Checkpoint, load_checkpoint
from triptych_training.decoding.greedy import greedy

from ....fixtures.toy import BUNDLE, HERE

LENGTH = 40


@pytest.fixture(scope="module")
def checkpoint() -> Checkpoint:
    return load_checkpoint(HERE / "checkpoint")


@pytest.fixture(scope="module")
def sources(checkpoint: Checkpoint) -> list[list[int]]:
    return [e.ids for e in checkpoint.tokenizer.encode_batch([source for source, _ in checkpoint.samples])]


@pytest.fixture(scope="module")
def sample(checkpoint: Checkpoint, sources: list[list[int]]) -> ParitySample:
    chosen = sources[::16]
    return ParitySample(chosen, greedy(checkpoint.model, chosen, LENGTH), LENGTH)


def test_the_committed_bundle_equals_its_checkpoint(sample: ParitySample) -> None:
    report = check_parity(BUNDLE, "fp32", sample)
    assert report == {
        "sentences": 24,
        "distinct_outputs": 24,
        "tokens": sum(map(len, sample.expected)),
        "batches": [1, 3, 16],
        "identical": True,
    }


def test_a_single_different_token_fails_and_is_shown(sample: ParitySample) -> None:
    expected = [list(row) for row in sample.expected]
    right, expected[5][2] = expected[5][2], 99
    with pytest.raises(ParityError) as caught:
        check_parity(BUNDLE, "fp32", ParitySample(sample.sources, expected, LENGTH))
    assert "1 of 24 sentences differ" in str(caught.value)
    assert "sentence 5 at token 2: PyTorch [99, " in str(caught.value)
    assert f"bundle [{right}, " in str(caught.value)


def test_a_missing_end_fails(sample: ParitySample) -> None:
    expected = [*sample.expected[:-1], sample.expected[-1][:-1]]
    with pytest.raises(ParityError, match=r"sentence 23 at token \d+: PyTorch \[\], bundle \[\d+\]"):
        check_parity(BUNDLE, "fp32", ParitySample(sample.sources, expected, LENGTH))


def test_samples_that_prove_too_little_are_rejected(checkpoint: Checkpoint, sources: list[list[int]]) -> None:
    with pytest.raises(SourceError, match="parity: 199 sentences given, at least 200 are needed; pass a larger --valid file"):
        make_sample(checkpoint.model, sources[:199], LENGTH)
    with pytest.raises(SourceError, match="gives 10 distinct translations of 200 sentences, at least 150 are needed"):
        make_sample(checkpoint.model, sources[:10] * 20, 10)
    assert len(make_sample(checkpoint.model, sources[:10] * 20, 10, untrained=True).expected) == 200
    with pytest.raises(
        SourceError, match=r"gives 4 distinct translations of 12 sentences, at least half are needed; .* add --allow-untrained"
    ):
        make_framed_sample(checkpoint.model, sources[:4] * 3, [()] * 12, 10, ())
    assert len(make_framed_sample(checkpoint.model, sources[:4] * 3, [()] * 12, 10, (), untrained=True).expected) == 12
    assert len(make_framed_sample(checkpoint.model, sources[:4] * 2, [()] * 8, 10, ()).expected) == 8


def test_agreement_counts_sentences_and_tokens_in_their_place() -> None:
    same, shorter = agreement([[1, 2], [3]], [[1, 2], [3]]), agreement([[1, 2, 3, 4], [5], []], [[1, 2], [5], [6]])
    names = ("decisions", "next_token_agreement_percent", "identical_sentences_percent", "token_agreement_percent")
    assert same == dict(zip(names, (5, 100, 100, 100), strict=True))
    assert shorter == dict(zip(names, (6, 66.67, 33.33, 50), strict=True))


def test_a_bundle_follows_prefixes(checkpoint: Checkpoint, sources: list[list[int]]) -> None:
    """Each translation begins with its own, which counts among the tokens."""
    chosen = sources[::32]
    prefixes = [(20 + index % 3, 9) for index in range(len(chosen))]
    sample = make_framed_sample(checkpoint.model, chosen, prefixes, LENGTH, ())
    assert [tuple(answer[:2]) for answer in sample.expected] == prefixes
    assert check_parity(BUNDLE, "fp32", sample)["identical"] is True
    without = ParitySample(sample.sources, sample.expected, LENGTH)
    with pytest.raises(ParityError, match="sentences differ"):
        check_parity(BUNDLE, "fp32", without)


def test_suppressed_tokens_are_never_generated(checkpoint: Checkpoint, sources: list[list[int]]) -> None:
    usual = make_framed_sample(checkpoint.model, sources[:8], [()] * 8, 12, ())
    banned = tuple({token for answer in usual.expected for token in answer[:2]})
    sample = make_framed_sample(checkpoint.model, sources[:8], [()] * 8, 12, banned)
    assert not {token for answer in sample.expected for token in answer} & set(banned)


@pytest.mark.parametrize(("difference", "tie"), [(0.0, True), (1.0, False)])
def test_tied_tokens_may_replace_each_other(difference: float, tie: bool, checkpoint: Checkpoint, sample: ParitySample) -> None:
    """The bundle gives one, the expectation names the other."""
    expected = [list(row) for row in sample.expected]
    token, expected[7][3] = expected[7][3], 99
    twins = copy.deepcopy(checkpoint.model)
    with torch.no_grad():
        twins.projection.weight = nn.Parameter(twins.projection.weight.detach().clone())
        twins.projection.weight[99] = twins.projection.weight[token] * (1 + difference)
    ties = find_ties(twins, sample.sources, expected)
    assert ((3, token) in ties[7]) == tie
    edited = ParitySample(sample.sources, expected, LENGTH, ties=ties)
    if tie:
        report = check_parity(BUNDLE, "fp32", edited)
        assert (report["identical"], report["ties"]) == (False, 1)
    else:
        with pytest.raises(ParityError, match="1 of 24 sentences differ"):
            check_parity(BUNDLE, "fp32", edited)


def test_a_trained_model_has_no_ties_but_its_own_tokens(checkpoint: Checkpoint, sample: ParitySample) -> None:
    ties = find_ties(checkpoint.model, sample.sources[:8], sample.expected[:8])
    own = [{(place, token) for place, token in enumerate([*answer, 2])} for answer in sample.expected[:8]]
    assert ties == own


@pytest.mark.parametrize(
    ("sample", "found", "tokens", "percent"),
    [
        (ParitySample([[9], [9]], [[5, 6, 7], [8]], max_length=9), [[5, 0, 7, 2], [8, 2]], 6, 83.333),
        (ParitySample([[9]], [[5, 6]], max_length=9, prefixes=[(5,)]), [[0, 6, 2]], 2, 100.0),
        (ParitySample([[9]], [[5, 6]], max_length=2), [[5, 6, 4]], 2, 100.0),
    ],
    ids=["ends count", "prefixes do not count", "a cut output has no end"],
)
def test_teacher_forced_tokens_are_counted(sample: ParitySample, found: list[list[int]], tokens: int, percent: float) -> None:
    report = forced_agreement(found, sample, 2)
    assert report == {"forced_tokens": tokens, "forced_token_agreement_percent": percent}
