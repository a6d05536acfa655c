"""Pairs are scored in batches."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing

import numpy as np
import pytest

from triptych_serving.bundle.manifest import SpecialTokens
from triptych_serving.errors import InvalidInputError
from triptych_serving.models.translation.scoring import LOGIT_BYTES, Scorer, TranslationScore
from triptych_serving.runtime.session import Array
from triptych_serving.scheduling.batch_scheduler import BatchLimits
from triptych_serving.scheduling.engine import run_rows
from triptych_serving.text.translation_tokenizer import TranslationTokenizer
from triptych_text.steps import finish

from .....fixtures.toy import PAIRS, SOURCE, SOURCES, TARGET, TARGETS

TOKENS = SpecialTokens(pad=0, start=1, end=2)


class StubSession:
    """Every token's log-probability is minus its id, less a thousandth of the source's length."""

    def __init__(self) -> None:
        self.shapes: list[tuple[int, ...]] = []

    def run(self, inputs: Mapping[str, Array], outputs: Sequence[str]) -> list[Array]:
        assert (outputs, set(inputs)) == (["log_probabilities"], {"source", "lengths", "targets"})
        source, lengths, targets = inputs["source"], inputs["lengths"], inputs["targets"]
        assert (source.dtype, lengths.dtype, targets.dtype) == (np.int64, np.int32, np.int64)
        assert (targets[:, 0] == TOKENS.start).all()
        self.shapes.append(targets.shape)
        return [(-targets[:, 1:] - lengths[:, None] / 1000).astype(np.float32)]


def scores(scorer: Scorer, pairs: Sequence[tuple[str, str]]) -> list[TranslationScore]:
    work = finish(scorer.prepare_steps(pairs))
    run_rows(scorer.engine, work.items, work.field)
    return list(work.read())


@pytest.fixture
def session() -> StubSession:
    return StubSession()


@pytest.fixture
def scorer(codec: TranslationTokenizer, session: StubSession) -> Iterator[Scorer]:
    scorer = Scorer(session, codec, TOKENS, runs=1, limits=BatchLimits(), gives_way=False)  # type: ignore[arg-type]
    with closing(scorer.engine):
        yield scorer


def test_every_pair_has_its_own_tokens(scorer: Scorer, codec: TranslationTokenizer) -> None:
    found = scores(scorer, PAIRS)
    for score, source, target in zip(found, codec.encode(SOURCES), codec.encode(TARGETS), strict=True):
        expected = [-token - len(source) / 1000 for token in target]
        np.testing.assert_allclose(score.token_log_probabilities, expected, rtol=1e-6)
        assert score.log_probability == pytest.approx(sum(expected))


def test_batches_stay_below_the_limit_of_the_logits(
    codec: TranslationTokenizer, session: StubSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    vocabulary = 300_000
    monkeypatch.setattr(TranslationTokenizer, "vocabulary", property(lambda self: vocabulary))
    scorer = Scorer(session, codec, TOKENS, runs=1, limits=BatchLimits(), gives_way=False)  # type: ignore[arg-type]
    with closing(scorer.engine):
        scores(scorer, PAIRS[:50])
    assert len(session.shapes) > 10
    assert max(rows * (length - 1) for rows, length in session.shapes) * vocabulary * 4 <= LOGIT_BYTES


@pytest.mark.parametrize(
    ("pair", "message"),
    [
        (("", TARGET), "pairs[1].source: the text is empty"),
        ((SOURCE, " "), "pairs[1].target: the text is empty"),
        (("1 " * 40, TARGET), "pairs[1].source: 82 tokens are too long, the model takes at most 64 tokens"),
        ((SOURCE, "1 " * 40), "pairs[1].target: 82 tokens are too long, the model takes at most 64 tokens"),
        ((SOURCE, "\udcff"), "pairs[1].target: the text is not Unicode"),
    ],
)
def test_a_bad_pair_is_named(scorer: Scorer, pair: tuple[str, str], message: str) -> None:
    with pytest.raises(InvalidInputError) as error:
        finish(scorer.prepare_steps([(SOURCE, TARGET), pair]))
    assert str(error.value).startswith(message)
