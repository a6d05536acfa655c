"""Fine-tuning heads: examples, losses, metrics."""

import json
import math
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor

from triptych_training.errors import CorpusError
from triptych_training.tasks.heads import IGNORED, LabelledExample, QuestionHead, TextHead, TokenHead, _word_f1

from ..toy_text import TOKENIZER, write, write_questions

CONTEXT = "Here is a cat. The cat eats fish. Here is a dog. The dog eats bones. Here is a cow. The cow eats grass."


def write_squad(path: Path, *questions: tuple[str, str, Sequence[str]]) -> str:
    """Write questions with context and answers; an answer's offset is that of its first occurrence."""
    paragraphs = [
        {"context": c, "qas": [{"question": q, "answers": [{"text": a, "answer_start": c.index(a)} for a in answers]}]}
        for q, c, answers in questions
    ]
    return write(path, json.dumps({"data": [{"paragraphs": paragraphs}]}))


def test_texts_and_pairs_become_examples(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", "the cat\tyes\nthe cat eats fish\tno\n")
    head = TextHead([path])
    examples, lost = head.examples(TOKENIZER, [path], max_length=5)
    assert lost == 1
    assert [(e.ids, e.target, e.source) for e in examples] == [(TOKENIZER.encode("the cat").ids, [1], 0)]
    examples, lost = head.examples(TOKENIZER, [path], max_length=6)
    assert ([e.target for e in examples], lost) == ([[1], [0]], 0)
    assert head.samples() == ["the cat", "the cat eats fish"]
    path = write(tmp_path / "a.tsv", "the cat\teats fish\tyes\nthe cow\teats hay\tno\n")
    head = TextHead([path])
    examples, _ = head.examples(TOKENIZER, [path], 48)
    assert head.pairs
    assert examples[0].ids == TOKENIZER.encode("the cat", "eats fish").ids
    assert examples[0].segments == [0, 0, 0, 0, 1, 1, 1]
    assert head.samples()[0] == ("the cat", "eats fish")


@pytest.mark.parametrize(
    ("head", "train", "valid", "message"),
    [
        (TextHead, "one\tyes\ntwo\tno\n", "one\tmaybe\ntwo\tyes\nthree\tnever\n", "valid: maybe, never: not among the labels"),
        (TokenHead, "a O\na B-Y\n", "a B-X\n", "valid: B-X: not among the labels of the training files"),
        (TextHead, "one\tyes\n", "", "train: the only label is 'yes', expected at least 2"),
        (TokenHead, "one O\ntwo O\n", "", "train: the only label is 'O', expected at least 2"),
        (TextHead, "one\tyes\ntwo\tno\n", "one\ttwo\tyes\n", "valid: has pairs, unlike the training files"),
        (TextHead, "one\ttwo\tyes\none\tone\tno\n", "one\tyes\n", "valid: has single texts, unlike the training files"),
    ],
)
def test_labels_and_kinds_of_texts_are_checked(
    tmp_path: Path, head: type[TextHead | TokenHead], train: str, valid: str, message: str
) -> None:
    files = write(tmp_path / "train", train), write(tmp_path / "valid", valid)
    with pytest.raises(CorpusError, match=message):
        head([files[0]]).examples(TOKENIZER, [files[1]], 48)


def test_the_first_token_of_a_word_gets_its_label_and_long_sentences_are_counted(tmp_path: Path) -> None:
    path = write(tmp_path / "a.conll", "the O\ncats B-ANIMAL\neats O\n")
    head = TokenHead([path])
    examples, _ = head.examples(TOKENIZER, [path], 48)
    assert [TOKENIZER.id_to_token(i) for i in examples[0].ids] == ["[CLS]", "the", "cat", "##s", "eats", "[SEP]"]
    assert examples[0].target == [IGNORED, 1, 0, IGNORED, 1, IGNORED]
    assert head.weight(examples[0]) == 3
    assert head.samples() == ["the cats eats"]
    path = write(tmp_path / "a.conll", "the O\n\nthe O\ncat B-ANIMAL\n\nthe O\ncow B-ANIMAL\neats O\n")
    head = TokenHead([path])
    examples, lost = head.examples(TOKENIZER, [path], 4)
    assert lost == 1
    assert [e.target for e in examples] == [[IGNORED, 1, IGNORED], [IGNORED, 1, 0, IGNORED]]


def test_the_loss_of_tokens_is_the_sum_over_words() -> None:
    logits = torch.randn(2, 4, 3)
    head = object.__new__(TokenHead)
    targets = torch.tensor([[IGNORED, 1, IGNORED, IGNORED], [IGNORED, 1, 0, IGNORED]])
    loss = head.loss(lambda ids, segments: logits, torch.ones(1), torch.ones(1), targets, 0.0)  # type: ignore[arg-type]
    logs = logits.log_softmax(-1)
    torch.testing.assert_close(loss, -(logs[0, 1, 1] + logs[1, 1, 1] + logs[1, 2, 0]))


def test_token_metrics_count_words_and_whole_entities(tmp_path: Path) -> None:
    path = write(tmp_path / "a.conll", "a B-X\nb I-X\nc O\nd B-X\n")
    head = TokenHead([path])
    assert head.labels == ("B-X", "I-X", "O")
    example = LabelledExample([], [], [IGNORED, 0, 1, 2, 0], 0)

    def metrics(*guesses: int) -> dict[str, float]:
        return head.metrics([head.predict(torch.eye(3)[[2, *guesses]], example)], [example])

    assert metrics(0, 1, 2, 0) == {"accuracy": 1, "f1": 1, "words": 4}
    assert metrics(0, 2, 2, 0) == {"accuracy": 0.75, "f1": 0.5, "words": 4}  # two found, two expected, one the same
    assert metrics(2, 2, 2, 2) == {"accuracy": 0.25, "f1": 0, "words": 4}


def test_windows_cover_a_long_context_and_find_the_answer(tmp_path: Path) -> None:
    path = write_squad(
        tmp_path / "a.json", ("the cow eats", CONTEXT, ["grass"]), ("the dog eats", CONTEXT, ["The dog eats bones"])
    )
    examples, lost = QuestionHead(stride=6).examples(TOKENIZER, [path], max_length=22)
    assert lost == 0
    assert {example.source for example in examples} == {0, 1}
    for example in examples:
        assert len(example.ids) <= 22
        if any(example.target):  # the others are windows without the answer
            first, last = (example.offsets[place] for place in example.target)
            assert CONTEXT[first[0] : last[1]] == ("grass", "The dog eats bones")[example.source]
        assert example.offsets[: example.segments.index(1)] == [(0, 0)] * example.segments.index(1)
    short, _ = QuestionHead(stride=6).examples(TOKENIZER, [path], max_length=48)
    assert len(short) == 2 <= len(examples)


def test_questions_without_an_answer_or_with_a_long_one(tmp_path: Path) -> None:
    path = write_squad(tmp_path / "a.json", ("the frog eats", CONTEXT, []))
    examples, lost = QuestionHead(stride=6).examples(TOKENIZER, [path], max_length=22)
    assert (lost, {tuple(example.target) for example in examples}, len(examples) > 1) == (0, {(0, 0)}, True)
    path = write_squad(tmp_path / "a.json", ("what", CONTEXT, [CONTEXT]), ("what", CONTEXT, ["fish"]))
    examples, _ = QuestionHead(stride=6).examples(TOKENIZER, [path], max_length=22)
    assert {example.source for example in examples if any(example.target)} == {1}
    assert {example.source for example in examples} == {0, 1}
    path = write_squad(tmp_path / "a.json", ("the cat eats fish", CONTEXT, ["fish"]))
    with pytest.raises(CorpusError, match="a question has 6 tokens, which leaves no room for a context in max_length 7; "):
        QuestionHead(stride=0).examples(TOKENIZER, [path], max_length=7)


def test_windows_that_are_nearly_alike_are_refused(tmp_path: Path) -> None:
    path = write_squad(tmp_path / "a.json", ("the cat eats fish", " ".join([CONTEXT] * 20), ["fish"]))
    with pytest.raises(CorpusError, match="6 tokens; in max_length 35 that allows a stride of 24, not 26; lower stride, or"):
        QuestionHead(stride=26).examples(TOKENIZER, [path], max_length=35)
    tokens = len(TOKENIZER.encode(" ".join([CONTEXT] * 20), add_special_tokens=False).ids)
    examples, _ = QuestionHead(stride=24).examples(TOKENIZER, [path], max_length=35)
    assert len(examples) < tokens / 3
    assert len(QuestionHead(stride=0).examples(TOKENIZER, [path], max_length=8)[0]) == tokens


@pytest.mark.parametrize(
    ("answer", "right", "f1"),
    [
        ("the cat", "Cat!", 1),
        ("black cat", "cat", 2 / 3),
        ("dog", "cat", 0),
        ("", "", 1),
        ("cat", "", 0),
        ("x x y", "x", 0.5),
        ("an apple", "U.S.A.", 0),
        ("an apple", "apple", 1),
        ("U.S.A.", "usa", 1),
        ("theatre", "theatre", 1),
        ("a", "", 1),
    ],
)
def test_word_f1(answer: str, right: str, f1: float) -> None:
    assert _word_f1(answer, right) == pytest.approx(f1)


def logits(size: int, *high: tuple[int, float]) -> Tensor:
    return torch.tensor([dict(high).get(place, 0.0) for place in range(size)])


@pytest.fixture
def question(tmp_path: Path) -> tuple[QuestionHead, LabelledExample]:
    """Encode `[CLS] the [SEP] the cat eats fish [SEP]`."""
    head = QuestionHead(stride=2)
    examples, _ = head.examples(TOKENIZER, [write_squad(tmp_path / "a.json", ("the", "the cat eats fish", ["fish"]))], 48)
    assert len(examples[0].ids) == 8
    return head, examples[0]


@pytest.mark.parametrize(
    ("start", "end", "answer"),
    [
        ([(4, 5.0)], [(6, 5.0)], "cat eats fish"),
        ([(6, 5.0), (4, 4.0)], [(4, 5.0), (5, 4.5)], "cat"),  # 6 to 4 is backwards
        ([(1, 9.0), (4, 4.0)], [(4, 4.0), (7, 9.0)], "cat"),  # not in the context: question and [SEP]
        ([(0, 9.0), (4, 4.0)], [(0, 9.0), (4, 4.0)], ""),  # [CLS]: no answer
        ([(0, 9.0), (4, 4.0)], [(4, 4.0)], ""),
    ],
)
def test_the_best_span_of_the_context_is_the_answer(
    question: tuple[QuestionHead, LabelledExample],
    start: list[tuple[int, float]],
    end: list[tuple[int, float]],
    answer: str,
) -> None:
    head, example = question
    padded = [torch.cat((logits(8, *side), torch.full((3,), -math.inf))) for side in (start, end)]
    _, text, nothing = prediction = head.predict(padded, example)
    assert (text if prediction[0] > nothing else "") == answer


def test_the_best_window_gives_the_answer_and_every_question_counts(question: tuple[QuestionHead, LabelledExample]) -> None:
    head, example = question
    wrong, surer, nothing = (
        head.predict((logits(8, place), logits(8, place)), example) for place in ((4, 3.0), (6, 4.0), (0, 9.0))
    )
    for predictions in ([wrong, surer], [surer, nothing]):
        assert head.metrics(predictions, [example] * 2) == {"exact_match": 1, "f1": 1, "questions": 1}
    for prediction in (wrong, nothing):
        assert head.metrics([prediction], [example]) == {"exact_match": 0, "f1": 0, "questions": 1}


def test_question_targets_are_positions(tmp_path: Path) -> None:
    head = QuestionHead(stride=4)
    examples, lost = head.examples(TOKENIZER, [write_questions(tmp_path / "a.json")], 48)
    assert lost == 0
    assert all(len(example.target) == 2 for example in examples)
    assert len(head.samples()) == len(examples) == 6
    loss = head.loss(
        lambda ids, segments: (torch.zeros(6, 40), torch.zeros(6, 40)),  # type: ignore[arg-type]
        torch.ones(1),
        torch.ones(1),
        torch.tensor([example.target for example in examples]),
        0.1,
    )
    assert float(loss) == pytest.approx(6 * math.log(40), rel=1e-5)
