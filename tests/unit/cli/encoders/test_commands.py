"""The verbs of encoder models, with models that only pretend."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import pytest

from triptych_cli.common.batch import run_each
from triptych_cli.common.scores import score_number, score_text
from triptych_embedded.request import BackendError, InputError, Place
from triptych_serving.models.image.image_job import ClassifiedImage
from triptych_serving.models.labels import ScoredLabel
from triptych_serving.models.text.embedding import TextEmbedding
from triptych_serving.models.text.fill_mask import FilledMask, FilledText, MaskCandidate
from triptych_serving.models.text.question_answering import AnsweredQuestion, ExtractedAnswer
from triptych_serving.models.text.text_classification import ClassifiedText
from triptych_serving.models.text.token_classification import Entity, LabelledText

from ..conftest import Run


class Pretender:
    """Knows two words and two labels; refuses what has no mask, is too long, or is no image."""

    def __init__(self) -> None:
        self.places: list[tuple[Place, str]] = []
        self.calls: list[tuple[object, ...]] = []

    def open(self, place: Place, capability: str) -> Self:
        self.places.append((place, capability))
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *details: object) -> None:
        """Nothing to close."""

    def fill_mask(self, texts: Sequence[str], top_k: int, targets: Sequence[str]) -> list[FilledText]:
        self.calls.append((len(texts), top_k, tuple(targets)))
        return [self._fill(index, text, top_k) for index, text in enumerate(texts)]

    def _fill(self, index: int, text: str, top_k: int) -> FilledText:
        if "[MASK]" not in text:
            raise InputError(index, "there is no [MASK]")
        words = [("paris", 0.875, 3), ("lyon", 0.00001, 4)][:top_k]
        mask = FilledMask(tuple(MaskCandidate(p, token, word, text.replace("[MASK]", word, 1)) for word, p, token in words))
        return FilledText((mask,) * text.count("[MASK]"), 9)

    def embed(self, texts: Sequence[str], pooling: str | None, normalize: bool | None) -> list[TextEmbedding]:
        self.calls.append((pooling, normalize))
        for index, text in enumerate(texts):
            if len(text) > 100:
                raise InputError(index, "too long")
        return [TextEmbedding((0.10000000149011612, float(len(text))), 5) for text in texts]

    def classify_texts(self, inputs: Sequence[str | tuple[str, str]], top_k: int | None) -> list[ClassifiedText]:
        self.calls.append((list(inputs), top_k))
        labels = (ScoredLabel("joy", 0.75, 1), ScoredLabel("anger", 0.25, 0))
        return [ClassifiedText(labels[: top_k or 2], 5) for _ in inputs]

    def classify_tokens(self, texts: Sequence[str], aggregation: str) -> list[LabelledText]:
        self.calls.append((list(texts), aggregation))
        return [LabelledText((Entity("PER", 0.5, text[:3], 0, 3),), 5) for text in texts]

    def answer(self, pairs: Sequence[tuple[str, str]], top_k: int, max_answer_length: int) -> list[AnsweredQuestion]:
        self.calls.append((list(pairs), top_k, max_answer_length))
        return [AnsweredQuestion((ExtractedAnswer(context[:4], 0.5, 0, 4),), 9) for _, context in pairs]

    def classify_images(self, images: Sequence[bytes], top_k: int) -> list[ClassifiedImage]:
        self.calls.append((len(images), top_k))
        for index, image in enumerate(images):
            if image.startswith(b"bad"):
                raise InputError(index, "no JPEG, PNG or WebP file")
        labels = (ScoredLabel("tabby", 0.75, 281), ScoredLabel("tiger cat", 0.125, 282))
        return [ClassifiedImage(labels[:top_k], len(image), 2) for image in images]


@pytest.fixture
def models(monkeypatch: pytest.MonkeyPatch) -> Pretender:
    pretender = Pretender()
    for module in ("texts", "classify"):
        monkeypatch.setattr(f"triptych_cli.encoders.{module}.open_encoders", pretender.open)
    return pretender


def test_fill_shows_a_line_for_each_candidate(run: Run, models: Pretender) -> None:
    result = run("fill", "I see [MASK].")
    assert (result.code, result.err) == (0, "")
    assert result.out == " 0.8750  paris  I see paris.\n1.0e-05  lyon   I see lyon.\n\n"


def test_fill_shows_a_block_for_each_mask_of_each_text(run: Run, models: Pretender) -> None:
    result = run("fill", "--top-k", "1", "[MASK] or [MASK]", "a [MASK]")
    assert result.out.split("\n\n") == [*[" 0.8750  paris  paris or [MASK]"] * 2, " 0.8750  paris  a paris", ""]


def test_fill_passes_its_options_on(run: Run, models: Pretender) -> None:
    run("fill", "--targets", "paris, lyon", "--top-k", "2", "--model", "m", "--models", "there", "[MASK]")
    assert models.calls == [(1, 2, ("paris", "lyon"))]
    assert models.places == [(Place(models=Path("there"), model="m"), "fill-mask")]


def test_fill_for_scripts(run: Run, models: Pretender) -> None:
    result = run("fill", "--json", "--top-k", "1", stdin=b"\xef\xbb\xbfh\xc3\xb4tel [MASK]\n\nno mask\n")
    assert result.code == 1
    candidate = {"score": 0.875, "token": 3, "token_str": "paris", "sequence": "hôtel paris"}
    assert [json.loads(line) for line in result.out.splitlines()] == [
        {"text": "hôtel [MASK]", "token_count": 9, "masks": [[candidate]]},
        {"text": "no mask", "error": "there is no [MASK]"},
    ]


def test_a_bad_text_is_named_and_the_others_are_done(run: Run, models: Pretender) -> None:
    result = run("fill", "--top-k", "1", "a [MASK]", "none", "b [MASK]")
    assert (result.code, result.err) == (1, "text 2: there is no [MASK]\n")
    assert [line.split()[-2:] for line in result.out.splitlines() if line] == [["a", "paris"], ["b", "paris"]]


def test_more_lines_than_one_batch(run: Run, models: Pretender, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("triptych_cli.encoders.texts.BATCH", 2)
    result = run("fill", "--json", stdin="".join(f"{n} [MASK]\n" for n in range(5)).encode())
    assert [json.loads(line)["text"] for line in result.out.splitlines()] == [f"{n} [MASK]" for n in range(5)]
    assert [call[0] for call in models.calls] == [2, 2, 1]


def test_embed_is_for_scripts(run: Run, models: Pretender, tmp_path: Path) -> None:
    (tmp_path / "lines.txt").write_text("abc\n" + "a" * 101 + "\nab\n", encoding="utf-8")
    result = run("embed", "-i", tmp_path / "lines.txt", "--pooling", "cls", "--normalize")
    assert (result.code, result.err) == (1, f"{tmp_path / 'lines.txt'}:2: too long\n")
    rows = [json.loads(line) for line in result.out.splitlines()]
    assert rows[0] == {"text": "abc", "token_count": 5, "values": [0.100000001, 3.0]}
    assert rows[1]["error"] == "too long"
    assert rows[2]["values"] == [0.100000001, 2.0]
    assert set(models.calls) == {("cls", True)}


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    for name, content in (("a.png", b"abc"), ("bad.png", b"bad"), ("c.png", b"c")):
        (tmp_path / name).write_bytes(content)
    return tmp_path


def test_embed_leaves_open_what_is_not_said(run: Run, models: Pretender) -> None:
    assert run("embed", "A text.").code == 0
    assert run("embed", "--no-normalize", "A text.").code == 0
    assert models.calls == [(None, None), (None, False)]


def test_classify_text_shows_a_block_for_each_text(run: Run, models: Pretender) -> None:
    result = run("classify-text", "Great!", "a\tb")
    assert (result.code, result.err) == (0, "")
    assert result.out == "Great!\n 0.7500  joy\n 0.2500  anger\na\tb\n 0.7500  joy\n 0.2500  anger\n"
    assert models.calls == [(["Great!", ("a", "b")], None)]
    assert models.places[0][1] == "text-classification"


def test_classify_text_for_scripts(run: Run, models: Pretender) -> None:
    result = run("classify-text", "--top-k", "1", "--json", "Great!")
    labels = [{"label": "joy", "score": 0.75, "index": 1}]
    assert json.loads(result.out) == {"text": "Great!", "token_count": 5, "labels": labels}


def test_classify_tokens_shows_the_entities_of_each_text(run: Run, models: Pretender) -> None:
    assert run("classify-tokens", "Ann ran.").out == "Ann ran.\n 0.5000  PER  Ann\n\n"
    result = run("classify-tokens", "--aggregation", "none", "--json", "Ann ran.")
    entities = [{"label": "PER", "score": 0.5, "text": "Ann", "start": 0, "end": 3}]
    assert json.loads(result.out) == {"text": "Ann ran.", "token_count": 5, "entities": entities}
    assert [call[1] for call in models.calls] == ["simple", "none"]
    assert models.places[0][1] == "token-classification"


def test_answer_looks_in_one_context_for_all_questions(run: Run, models: Pretender, tmp_path: Path) -> None:
    assert run("answer", "--context", "Here it is.", "Where?").out == "Where?\n 0.5000  Here\n\n"
    (tmp_path / "context.txt").write_text("Now.", encoding="utf-8")
    result = run("answer", "--context-file", str(tmp_path / "context.txt"), "--top-k", "3", "--json", "When?")
    answers = [{"text": "Now.", "score": 0.5, "start": 0, "end": 4}]
    assert json.loads(result.out) == {"text": "When?", "token_count": 9, "answers": answers}
    assert models.calls == [([("Where?", "Here it is.")], 1, 15), ([("When?", "Now.")], 3, 15)]


def test_answer_takes_a_context_behind_each_question(run: Run, models: Pretender) -> None:
    result = run("answer", "Where?\tHere it is.", "When?")
    assert result.out == "Where?\n 0.5000  Here\n\n"
    assert result.code == 1
    assert result.err == "text 2: there is no context: give --context, or a tab and the context behind the question\n"


def test_answer_takes_one_context_only(run: Run, models: Pretender, tmp_path: Path) -> None:
    (tmp_path / "context.txt").write_text("Now.", encoding="utf-8")
    result = run("answer", "--context", "x", "--context-file", str(tmp_path / "context.txt"), "When?")
    assert result.code == 2
    assert "--context or --context-file, not both" in result.err


def test_classify_shows_a_block_for_each_photo(run: Run, models: Pretender, photos: Path) -> None:
    result = run("classify", photos / "a.png", photos / "c.png")
    assert (result.code, result.err) == (0, "")
    rows = [" 0.7500  tabby", " 0.1250  tiger cat"]
    assert result.out.splitlines() == [str(photos / "a.png"), *rows, str(photos / "c.png"), *rows]


def test_classify_shows_a_line_for_each_photo_where_one_label_is_asked_for(run: Run, models: Pretender, photos: Path) -> None:
    assert run("classify", "--top-k", "1", photos / "a.png").out == f"{photos / 'a.png'}  0.7500  tabby\n"


@pytest.mark.parametrize("arguments", [[], ["-"]])
def test_classify_reads_standard_input(run: Run, models: Pretender, arguments: list[str]) -> None:
    result = run("classify", "--top-k", "1", *arguments, stdin=b"an image")
    assert result.out == "standard input  0.7500  tabby\n"


def test_bad_photos_are_named_and_the_others_are_done(run: Run, models: Pretender, photos: Path) -> None:
    names = [str(photos / name) for name in ("a.png", "missing.png", "bad.png", "c.png")]
    result = run("classify", "--json", "--top-k", "1", *names)
    assert result.code == 1
    problems = ["cannot be read: No such file or directory", "no JPEG, PNG or WebP file"]
    assert result.err.splitlines() == [f"{name}: {problem}" for name, problem in zip(names[1:3], problems, strict=True)]
    rows = [json.loads(line) for line in result.out.splitlines()]
    assert [row["photo"] for row in rows] == names
    assert [row.get("error") for row in rows] == [None, *problems, None]
    assert rows[0]["labels"] == [{"label": "tabby", "score": 0.75, "index": 281}]
    assert (rows[3]["width"], rows[3]["height"]) == (1, 2)


@pytest.mark.parametrize(("verb", "method"), [("fill", "fill_mask"), ("embed", "embed"), ("classify", "classify_images")])
def test_a_failure_of_the_whole_is_one_line(
    run: Run, models: Pretender, monkeypatch: pytest.MonkeyPatch, verb: str, method: str
) -> None:
    def fail(*arguments: object) -> None:
        raise BackendError("no model\ncan do it")

    monkeypatch.setattr(models, method, fail)
    result = run(verb, "-", stdin=b"text\n")
    assert (result.code, result.error) == (1, "no model can do it")


def test_a_batch_with_a_bad_input_is_done_one_by_one() -> None:
    calls: list[list[int]] = []

    def run_some(numbers: Sequence[int]) -> list[int]:
        calls.append(list(numbers))
        for index, number in enumerate(numbers):
            if number < 0:
                raise InputError(index, f"{number} is negative")
        return [10 * number for number in numbers]

    outcomes = run_each(run_some, [1, -2, 3])
    assert [str(outcome) for outcome in outcomes] == ["10", "-2 is negative", "30"]
    assert calls == [[1, -2, 3], [1], [-2], [3]]
    assert run_each(run_some, []) == []


@pytest.mark.parametrize(("score", "text"), [(1.0, "1.0000"), (0.0001, "0.0001"), (0.00001234, "1.2e-05"), (0.0, "0.0000")])
def test_scores_are_short(score: float, text: str) -> None:
    assert score_text(score) == text


def test_scores_have_no_digits_that_a_float32_lacks() -> None:
    assert score_number(0.10000000149011612) == 0.1
