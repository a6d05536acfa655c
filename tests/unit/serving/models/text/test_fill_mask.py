"""The fill-mask task."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from triptych_serving.errors import InvalidInputError
from triptych_serving.models.text import fill_mask as module
from triptych_serving.models.text.fill_mask import FilledText
from triptych_serving.models.text.tasks import EMBEDDING_TASK, FILL_MASK_TASK
from triptych_serving.models.text.text_model import TextModel
from triptych_serving.runtime.session import Session

from .....fixtures.encoders import ID, MAX_TOKENS, VOCABULARY
from ...encoders import text_model


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TextModel]:
    with text_model(tmp_path_factory.mktemp("models")) as model:
        yield model


def words(filled: FilledText) -> list[list[str]]:
    return [[candidate.token_str for candidate in mask.candidates] for mask in filled.masks]


def test_candidates_come_best_first_with_their_probability(model: TextModel) -> None:
    [filled] = model.run(FILL_MASK_TASK, ["one two [MASK]"], top_k=1_000)
    candidates = filled.masks[0].candidates
    assert [candidate.token for candidate in candidates[:3]] == [ID["three"], ID["four"], ID["two"]]
    assert sorted(words(filled)[0]) == sorted(VOCABULARY)
    distances = np.abs(np.arange(len(VOCABULARY)) - (ID["three"] + 0.25))
    expected = np.exp(-2 * distances) / np.exp(-2 * distances).sum()
    assert [candidate.score for candidate in candidates[:3]] == pytest.approx(sorted(expected, reverse=True)[:3], rel=1e-4)
    assert sum(candidate.score for candidate in candidates) == pytest.approx(1, rel=1e-4)
    assert filled.token_count == 5
    assert words(model.run(FILL_MASK_TASK, ["one two [MASK]"], top_k=3)[0]) == [["three", "four", "two"]]


@pytest.mark.parametrize(
    ("text", "targets", "filled_in"),
    [
        (
            "ONE  [MASK]\n- Two[MASK], [CLS] Café 漢 six [MASK]",
            [],
            {
                "two": "ONE  two\n- Two[MASK], [CLS] Café 漢 six [MASK]",
                "three": "ONE  [MASK]\n- Twothree, [CLS] Café 漢 six [MASK]",
                "seven": "ONE  [MASK]\n- Two[MASK], [CLS] Café 漢 six seven",
            },
        ),
        ("six [MASK]!", ["##teen"], {"##teen": "sixteen!"}),
        ("six[MASK]", ["##teen"], {"##teen": "sixteen"}),
        ("[MASK]", ["##teen"], {"##teen": "teen"}),
    ],
)
def test_masks_are_filled_in_the_callers_own_text(
    model: TextModel, text: str, targets: list[str], filled_in: dict[str, str]
) -> None:
    [filled] = model.run(FILL_MASK_TASK, [text], top_k=1, targets=targets)
    assert words(filled) == [[word] for word in filled_in]
    assert [mask.candidates[0].sequence for mask in filled.masks] == [*filled_in.values()]


def test_targets_are_ranked_with_unchanged_probabilities(model: TextModel) -> None:
    [everything] = model.run(FILL_MASK_TASK, ["six [MASK]"], top_k=1_000)
    [filled] = model.run(FILL_MASK_TASK, ["six [MASK]"], targets=["nine", "Two", "##ty", "seven", "nine"])
    assert words(filled) == [["seven", "nine", "##ty", "two"]]
    scores = {candidate.token: candidate.score for candidate in everything.masks[0].candidates}
    for candidate in filled.masks[0].candidates:
        assert candidate.score == pytest.approx(scores[candidate.token], rel=1e-5)
    [two] = model.run(FILL_MASK_TASK, ["six [MASK]"], targets=["nine", "two", "seven"], top_k=2)
    assert words(two) == [["seven", "nine"]]


def test_batched_rows_are_independent(model: TextModel) -> None:
    texts = [f"{word} " * (1 + index % 7) + "[MASK] one [MASK]" for index, word in enumerate(["two", "five", "eight"] * 30)]
    together = model.run(FILL_MASK_TASK, texts, top_k=2)
    assert [words(filled) for filled in together] == [words(model.run(FILL_MASK_TASK, [text], top_k=2)[0]) for text in texts]
    expected = {"two": "three", "five": "six", "eight": "nine"}
    assert [words(filled)[0][0] for filled in together] == [expected[text.split()[0]] for text in texts]


def test_many_masks_are_allowed_within_the_token_limit(model: TextModel) -> None:
    [filled] = model.run(FILL_MASK_TASK, ["one" + " [MASK]" * 50], top_k=1)
    assert len(filled.masks) == 50
    with pytest.raises(InvalidInputError, match=r"contents\[1\]: 71 tokens are too long, the model takes at most 64"):
        model.run(FILL_MASK_TASK, ["[MASK]", "one" + " [MASK]" * (MAX_TOKENS + 4)])


@pytest.mark.parametrize(
    ("texts", "options", "message"),
    [
        (["[MASK]", "one"], {}, r"contents\[1\]: there is no \[MASK\] to fill"),
        (["[mask]"], {}, r"contents\[0\]: there is no \[MASK\]"),
        ([" "], {}, r"contents\[0\]: the text is empty"),
        (["[MASK] \ud800"], {}, r"contents\[0\]: the text is not Unicode"),
        (["one " * 10_000 + "[MASK]"], {}, r"contents\[0\]: 40,006 characters are too long"),
        (
            ["[MASK]"],
            {"targets": ["one", "sixteen"]},
            r"targets\[1\]: 'sixteen' is 2 tokens of the model \(six ##teen\), a target",
        ),
        (["[MASK]"], {"targets": ["berlin"]}, r"targets\[0\]: 'berlin' is not in the model's vocabulary"),
        (["[MASK]"], {"targets": [""]}, r"targets\[0\]: the target is empty"),
        (["[MASK]"], {"targets": ["\udc00"]}, r"targets\[0\]: the target is not Unicode"),
        (["[MASK]"], {"top_k": 0}, r"top_k: 0 is out of range, it must be at least 1 and at most 1,000"),
        (["[MASK]"], {"top_k": 1_001}, r"top_k: 1,001 is out of range"),
    ],
)
def test_invalid_requests_name_the_field(model: TextModel, texts: list[str], options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        model.run(FILL_MASK_TASK, texts, **options)


def test_masks_that_only_the_tokenizer_sees_are_rejected(model: TextModel, monkeypatch: pytest.MonkeyPatch) -> None:
    model.run(FILL_MASK_TASK, ["one [MASK]"])  # makes the tokenizer that sees masks
    monkeypatch.setattr(model.tokenizer, "mask", "<mask>")
    with pytest.raises(InvalidInputError, match=r"^contents\[0\]: the model finds 1 masks, but <mask> occurs 0 times"):
        model.run(FILL_MASK_TASK, ["one [MASK]"])


def test_huge_responses_are_rejected(model: TextModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_ANSWER_BYTES", 500)
    model.run(FILL_MASK_TASK, ["one [MASK]"], top_k=10)
    with pytest.raises(InvalidInputError, match=r"^top_k: 1 masks x 11 candidates .* may need 550 bytes, at most 500 fit"):
        model.run(FILL_MASK_TASK, ["one [MASK]"], top_k=11)


def test_log_probabilities_are_fetched_only_for_targets(model: TextModel, monkeypatch: pytest.MonkeyPatch) -> None:
    fetched: list[set[str]] = []
    run = Session.run

    def spy(session: Session, inputs: object, outputs: Sequence[str], stop: None = None) -> object:
        fetched.append(set(outputs))
        return run(session, inputs, outputs)  # type: ignore[arg-type]

    monkeypatch.setattr(Session, "run", spy)
    model.run(FILL_MASK_TASK, ["one [MASK]"])
    model.run(FILL_MASK_TASK, ["one [MASK]"], targets=["two"])
    model.run(EMBEDDING_TASK, ["one"])
    assert fetched == [{"scores", "tokens"}, {"log_probabilities"}, {"mean"}]
