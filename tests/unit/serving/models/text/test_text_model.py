"""Text models: embeddings, labels, entities and answers, and checks of the tokenizer."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from triptych_serving.bundle.bundle import open_bundle
from triptych_serving.encoding.options import EncoderOptions
from triptych_serving.errors import BundleError, EngineError, InvalidInputError, UnsupportedError
from triptych_serving.models.text.embedding import EMBEDDING
from triptych_serving.models.text.task import TextTask
from triptych_serving.models.text.tasks import (
    EMBEDDING_TASK,
    FILL_MASK_TASK,
    QUESTION_ANSWERING_TASK,
    TEXT_CLASSIFICATION_TASK,
    TOKEN_CLASSIFICATION_TASK,
)
from triptych_serving.models.text.text_model import TextModel
from triptych_serving.models.text.token_classification import Entity
from triptych_serving.runtime.session import Session
from triptych_serving.scheduling.batch_scheduler import BatchLimits
from triptych_serving.scheduling.engine import run_rows

from .....fixtures.encoders import CLS, ID, SEP, sign, write_text_bundle
from ...encoders import OPTIONS, text_model


def test_mean_and_cls_pooling(repository: Path) -> None:
    with text_model(repository) as model:
        short, long = model.run(EMBEDDING_TASK, ["one", "one two three four five"])
        ids = [CLS, ID["one"], SEP]
        assert short.values == pytest.approx((np.mean(ids), 0, 1, 1))
        assert (short.token_count, long.token_count) == (3, 7)
        assert model.run(EMBEDDING_TASK, ["one"], pooling="cls")[0].values.tolist() == [CLS, 0, 0, 1]
        [unit] = model.run(EMBEDDING_TASK, ["one"], normalize=True)
        assert np.linalg.norm(unit.values) == pytest.approx(1)
        assert np.array(unit.values) * np.linalg.norm(short.values) == pytest.approx(np.array(short.values))
        assert model.run(EMBEDDING_TASK, ["[MASK] [SEP]"])[0].token_count == 8  # ordinary text: [ mask ] [ sep ]
        assert model.run(FILL_MASK_TASK, ["[MASK] [SEP]"])[0].token_count == 6
        with pytest.raises(InvalidInputError, match="pooling: 'max' is unknown, it must be one of"):
            model.run(EMBEDDING_TASK, ["one"], pooling="max")


@pytest.mark.parametrize("task", [EMBEDDING_TASK, TEXT_CLASSIFICATION_TASK, TOKEN_CLASSIFICATION_TASK])
def test_long_texts_are_truncated_on_request(repository: Path, task: TextTask[Any]) -> None:
    name = "fill-mask" if task is EMBEDDING_TASK else task.name
    with text_model(repository, name) as model:
        most = model.manifest.limits.max_tokens
        whole = " ".join(["one"] * (most - 2))
        texts = ["two", whole, f"{whole} two", "one " * most * 100, "a" * most * 101]
        results = model.run(task, texts, truncate=True)
        assert [result.truncated for result in results] == [False, False, True, True, True]
        assert [result.token_count for result in results[:4]] == [3, most, most, most]
        [same] = model.run(task, [whole])
        assert replace(results[2], truncated=False) == same
        with pytest.raises(InvalidInputError, match="too long"):
            model.run(task, texts)


def test_a_request_overrides_the_bundles_pooling(repository: Path) -> None:
    with text_model(repository, "text-embedding", pooling="cls", normalize=True) as model:
        assert model.capabilities == {EMBEDDING}
        assert model.describe().startswith("embeds text, CPU")
        [default], [plain] = model.run(EMBEDDING_TASK, ["one two"]), model.run(EMBEDDING_TASK, ["one two"], normalize=False)
        [mean] = model.run(EMBEDDING_TASK, ["one two"], pooling="mean", normalize=False)
        assert plain.values.tolist() == [CLS, 0, 0, 1]
        assert default.values == pytest.approx(np.array(plain.values) / np.linalg.norm(plain.values))
        assert mean.values == pytest.approx((np.mean([CLS, ID["one"], ID["two"], SEP]), 0, 1.5, 1))
        with pytest.raises(UnsupportedError, match="model 'text-embedding' is not one that fills masks; it embeds text"):
            model.run(FILL_MASK_TASK, ["[MASK]"])


def test_labels_come_best_first(repository: Path) -> None:
    def classify(*texts: Any, **options: int) -> Any:
        return model.run(TEXT_CLASSIFICATION_TASK, texts, **options)

    with text_model(repository, "text-classification") as model:
        one, many = classify("one", "one two three")
        assert [label.label for label in one.labels] == ["one word", "two words", "many words"]
        assert [label.index for label in many.labels] == [2, 1, 0]
        assert sum(label.score for label in one.labels) == pytest.approx(1)
        assert [len(classify("one", top_k=top_k)[0].labels) for top_k in (1, 9)] == [1, 3]
        with pytest.raises(InvalidInputError, match="top_k: 0 is out of range, it must be at least 1"):
            classify("one", top_k=0)
        with pytest.raises(
            InvalidInputError, match=r"inputs\[1\]\.text_pair: the model takes single texts; leave the second text empty"
        ):
            classify("one", ("one", "two"))


BAD_PAIRS: list[tuple[list[Any], str]] = [
    (["one"], r"inputs\[0\]\.text_pair: the second text is missing; the model takes pairs"),
    ([("one", "two"), ("", "two")], r"inputs\[1\]\.text: the text is empty"),
    ([("one", " ")], r"inputs\[0\]\.text_pair: the text is empty"),
    ([("one " * 50, "one " * 50)], r"inputs\[0\]: 103 tokens are too long"),
]


@pytest.mark.parametrize(
    ("task", "members", "bad"),
    [
        ("fill-mask", {"next_sentence": True}, BAD_PAIRS),
        ("text-classification", {"pairs": True}, BAD_PAIRS),
        ("text-classification", {"pairs": True, "singles": True}, BAD_PAIRS[1:]),
    ],
)
def test_classification_of_pairs(
    repository: Path, task: str, members: dict[str, bool], bad: list[tuple[list[Any], str]]
) -> None:
    with text_model(repository, task, **members) as model:
        singles: list[Any] = ["one", "two"] if "singles" in members else []
        most = model.manifest.limits.max_tokens
        given = [*singles, ("one", "two three"), ("one", "two " * most)]
        *results, long = model.run(TEXT_CLASSIFICATION_TASK, given, truncate=True)
        assert [(result.token_count, result.truncated) for result in results] == [(3, False)] * len(singles) + [(6, False)]
        assert (long.token_count, long.truncated) == (most, True)
        for inputs, message in bad:
            with pytest.raises(InvalidInputError, match=message):
                model.run(TEXT_CLASSIFICATION_TASK, inputs)


def test_next_sentence(repository: Path) -> None:
    with text_model(repository, "fill-mask", next_sentence=True) as model:
        [result] = model.run(TEXT_CLASSIFICATION_TASK, [("one", "two three")])
        assert {label.label: label.score for label in result.labels} == pytest.approx({"next": 0.5, "not_next": 0.5})
        [result] = model.run(TEXT_CLASSIFICATION_TASK, [("one", "two three four five")])
        assert [(label.label, label.index) for label in result.labels] == [("next", 1), ("not_next", 0)]
        assert model.labels == ("not_next", "next")
        with pytest.raises(UnsupportedError, match="has no logits; request scores from 0 to 1"):
            model.run(TEXT_CLASSIFICATION_TASK, [("one", "two three")], raw_scores=True)


def test_masks_vectors_and_pairs_share_batches(repository: Path) -> None:
    with text_model(repository, "fill-mask", next_sentence=True) as model:
        fill, embed, follow = (
            model.prepare(FILL_MASK_TASK, ["one [MASK] five [MASK]"], top_k=1),
            model.prepare(EMBEDDING_TASK, ["two"]),
            model.prepare(TEXT_CLASSIFICATION_TASK, [("one", "two three")]),
        )
        runner = model.engine._runner
        items = [*embed.items, *fill.items, *follow.items]
        batch = runner.prepare(items)
        runner.finish(items, runner.run(batch))
        assert [mask.candidates[0].token_str for mask in next(fill.read()).masks] == ["two", "six"]
        assert list(embed.read()) == model.run(EMBEDDING_TASK, ["two"])
        assert next(follow.read()).labels[0].score == pytest.approx(0.5)


def test_results_do_not_keep_the_batch_in_memory(repository: Path) -> None:
    with text_model(repository) as model:
        work = model.prepare(FILL_MASK_TASK, ["one [MASK]"] * 40)
        run_rows(model.engine, work.items)
        assert all(array.base is None for item in work.items for array in item.result.values())


def test_entities(repository: Path) -> None:
    def entities(text: str, **options: str) -> Any:
        return model.run(TOKEN_CLASSIFICATION_TASK, [text], **options)[0].entities

    with text_model(repository, "token-classification") as model:
        found = entities("Ünd Anna Smith, anna  lives in 漢Paris.")
        assert [(e.label, e.text, e.start, e.end) for e in found] == [
            ("PER", "Anna Smith", 4, 14),
            ("PER", "anna", 16, 20),
            ("LOC", "Paris", 32, 37),
        ]
        assert found[0].score == pytest.approx(0.7)
        assert entities("anna lives", aggregation="none") == (
            Entity("B-PER", pytest.approx(0.7), "anna", 0, 4),
            Entity("O", pytest.approx(0.7), "lives", 5, 10),
        )
        assert entities("one two") == ()
        assert [e.text for e in entities("anna anna smith smith paris paris")] == ["anna", "anna smith smith", "paris", "paris"]
        with pytest.raises(InvalidInputError, match="aggregation: 'last' is unknown, it must be one of: none, simple, first"):
            entities("one", aggregation="last")
    with text_model(repository / "iobes", "token-classification", labels=["O", "B-PER", "E-PER", "S-LOC"]) as model:
        found = entities("anna smith smith paris paris")
        assert [(e.label, e.text) for e in found] == [
            ("PER", "anna smith"),
            ("PER", "smith"),
            ("LOC", "paris"),
            ("LOC", "paris"),
        ]


def test_entities_of_whole_words(repository: Path) -> None:
    """The tokens of "annaty" are anna, a B-PER, and ##ty, an O, each with a probability of 0.7, and 0.1 for other labels."""
    with text_model(repository, "token-classification", aggregation="first") as model:
        found = {
            name: [
                (one.label, one.text, round(one.score, 3))
                for one in model.run(TOKEN_CLASSIFICATION_TASK, [text], **given)[0].entities
            ]
            for name, text, given in (
                ("default", "annaty smith, parisparis", {}),
                ("simple", "annaty", {"aggregation": "simple"}),
                ("max", "annaty smith", {"aggregation": "max"}),
                ("average", "annaty smith", {"aggregation": "average"}),
                ("nothing", "\u200b", {}),
            )
        }
    assert found == {
        "default": [("PER", "annaty smith", 0.7)],
        "simple": [("PER", "anna", 0.7)],
        "max": [("PER", "annaty smith", 0.7)],
        "average": [("PER", "smith", 0.7)],
        "nothing": [],
    }


def test_scores_of_a_regression_are_its_logits(repository: Path) -> None:
    members = {"labels": ["quality"], "logits": True, "pairs": True, "regression": True}
    with text_model(repository, "text-classification", **members) as model:
        [result] = model.run(TEXT_CLASSIFICATION_TASK, [("one", "two three four five six")])
        assert [(one.label, one.score) for one in result.labels] == [("quality", 3)]


def test_answers(repository: Path) -> None:
    """Answers come best first, and neither overlap nor leave the context."""
    with text_model(repository, "question-answering") as model:
        context = "Ünd Anna Smith lives in Paris."
        [result] = model.run(QUESTION_ANSWERING_TASK, [("Where does anna?", context)], top_k=2)
        assert [(answer.text, answer.start, answer.end) for answer in result.answers] == [
            ("Paris", 24, 29),
            ("Anna Smith", 4, 14),
        ]
        best, second = result.answers
        assert best.score > second.score > 0
        [lone] = model.run(QUESTION_ANSWERING_TASK, [("in?", "in")])
        [only] = lone.answers
        assert (only.text, only.start, only.end) == ("in", 0, 2)
        assert 0.9 < only.score < 1  # [CLS] has the rest
        assert lone.token_count == 6
        context = "anna smith in paris smith paris in anna"
        [result] = model.run(QUESTION_ANSWERING_TASK, [("paris?", context)], top_k=100, max_answer_length=3)
        spans = sorted((answer.start, answer.end) for answer in result.answers)
        assert all(end <= start for (_, end), (start, _) in pairwise(spans))
        assert all(context[answer.start : answer.end] == answer.text for answer in result.answers)
        assert all(len(answer.text.split()) <= 3 for answer in result.answers)
        scores = [answer.score for answer in result.answers]
        assert scores == sorted(scores, reverse=True)


@pytest.mark.parametrize(
    ("inputs", "options", "message"),
    [
        ([("", "here")], {}, r"inputs\[0\]\.question: the text is empty"),
        ([("a", "b"), ("where?", "")], {}, r"inputs\[1\]\.context: the text is empty"),
        ([("a", "one " * 80)], {}, r"inputs\[0\]: 84 tokens are too long"),
        ([("a", "b")], {"top_k": 101}, "top_k: 101 is out of range, it must be at least 1 and at most 100"),
        ([("a", "b")], {"max_answer_length": 0}, "max_answer_length: 0 is out of range, it must be at least 1"),
    ],
)
def test_bad_questions(repository: Path, inputs: Sequence[tuple[str, str]], options: dict[str, int], message: str) -> None:
    with text_model(repository, "question-answering") as model, pytest.raises(InvalidInputError, match=message):
        model.run(QUESTION_ANSWERING_TASK, inputs, **options)


@pytest.mark.parametrize(
    ("kind", "field", "task", "texts"),
    [
        ("fill-mask", "contents", EMBEDDING_TASK, ["one"] * 3),
        ("text-classification", "inputs", TEXT_CLASSIFICATION_TASK, ["one"] * 3),
        ("question-answering", "inputs", QUESTION_ANSWERING_TASK, [("where?", "in Paris")] * 3),
    ],
)
def test_too_many_texts_are_rejected_with_the_request_field(
    repository: Path, kind: str, field: str, task: Any, texts: list[Any]
) -> None:
    options = EncoderOptions(limits=BatchLimits(waiting_rows=2))
    with (
        text_model(repository, kind, options) as model,
        pytest.raises(InvalidInputError, match=f"^{field}: 3 rows in one request, at most 2 can wait"),
    ):
        model.run(task, texts)


def test_a_model_survives_a_runtime_error(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(session: Session, *arguments: object) -> None:
        raise EngineError("the runtime failed: out of luck")

    with text_model(repository) as model:
        with monkeypatch.context() as patch:
            patch.setattr(Session, "run", fail)
            with pytest.raises(EngineError, match="out of luck"):
                model.run(EMBEDDING_TASK, ["one"])
        assert model.run(EMBEDDING_TASK, ["one"])[0].token_count == 3


def spoil_vocabulary(content: dict[str, object]) -> None:
    content["model"]["vocab"].pop("mask")  # type: ignore[index]
    content["added_tokens"] = [token for token in content["added_tokens"] if token["id"] != 4]  # type: ignore[attr-defined]
    content["model"]["vocab"].pop("[MASK]")  # type: ignore[index]


@pytest.mark.parametrize(
    ("spoil", "fault"),
    [
        (
            lambda content: content.update(post_processor=None),
            r"an empty text becomes \[\], expected \[CLS\] \[SEP\], \[2, 3\]",
        ),
        (spoil_vocabulary, "it has no token 4, which the manifest has as mask"),
        (dict.clear, "not a tokenizer"),
    ],
)
def test_a_mismatched_tokenizer_is_a_fault(repository: Path, spoil: Callable[[dict[str, object]], object], fault: str) -> None:
    folder = write_text_bundle(repository)
    path = folder / "tokenizer.json"
    content = json.loads(path.read_text(encoding="utf-8"))
    spoil(content)
    path.write_text(json.dumps(content), encoding="utf-8")
    sign(folder)
    with pytest.raises(BundleError, match=fault):
        TextModel("toy", 1, open_bundle(folder), OPTIONS)
