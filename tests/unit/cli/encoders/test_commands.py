"""The commands of encoder models, most of them with fake models."""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from triptych_cli.encoders.backend import Run as RunTask
from triptych_client import Client, call
from triptych_embedded.request import BackendError, InputError, ModelChoice
from triptych_serving.models.image.image_job import ClassifiedImage
from triptych_serving.models.labels import ScoredLabel
from triptych_serving.models.text.embedding import TextEmbedding
from triptych_serving.models.text.fill_mask import FilledMask, FilledText, MaskCandidate
from triptych_serving.models.text.question_answering import AnsweredQuestion, ExtractedAnswer
from triptych_serving.models.text.text_classification import ClassifiedText
from triptych_serving.models.text.token_classification import Entity, LabelledText

from ....fixtures.encoders import write_cross_encoder, write_words
from ....fixtures.toy import ENCODER_MODELS
from ...client.fake_server import FakeServer, bad_field, fail
from ..conftest import Run


def fill(text: str, top_k: int, targets: Sequence[str]) -> FilledText:
    if "[MASK]" not in text:
        raise ValueError("there is no [MASK]")
    words = [("paris", 0.875, 3), ("lyon", 0.00001, 4)][:top_k]
    mask = FilledMask(tuple(MaskCandidate(p, token, word, text.replace("[MASK]", word, 1)) for word, p, token in words))
    return FilledText((mask,) * text.count("[MASK]"), 9)


def embed(text: str, truncate: bool, **_: Any) -> TextEmbedding:
    if len(text) > 100 and not truncate:
        raise ValueError("too long")
    return TextEmbedding((0.10000000149011612, float(len(text))), 5, len(text) > 100)


def classify_text(text: str | tuple[str, str], top_k: int | None, truncate: bool) -> ClassifiedText:
    return ClassifiedText((ScoredLabel("joy", 0.75, 1), ScoredLabel("anger", 0.25, 0))[: top_k or 2], 5)


def classify_tokens(text: str, aggregation: str, truncate: bool) -> LabelledText:
    return LabelledText((Entity("PER", 0.5, text[:3], 0, 3),), 5)


def answer(pair: tuple[str, str], top_k: int, max_answer_length: int) -> AnsweredQuestion:
    return AnsweredQuestion((ExtractedAnswer(pair[1][:4], 0.5, 0, 4),), 9)


def classify_image(image: bytes, top_k: int) -> ClassifiedImage:
    if image.startswith(b"bad"):
        raise ValueError("no JPEG, PNG or WebP file")
    return ClassifiedImage((ScoredLabel("tabby", 0.75, 281), ScoredLabel("tiger cat", 0.125, 282))[:top_k], len(image), 2)


class FakeModels:
    """Models for all tasks, which record their calls."""

    def __init__(self) -> None:
        self.choices: list[tuple[ModelChoice, str]] = []
        self.calls: list[tuple[list[Any], dict[str, Any]]] = []
        self.tasks: dict[str, Callable[..., Any]] = {
            "fill-mask": fill,
            "embedding": embed,
            "text-classification": classify_text,
            "token-classification": classify_tokens,
            "question-answering": answer,
            "image-classification": classify_image,
        }

    @contextmanager
    def open(self, choice: ModelChoice, capability: str, client_method: str) -> Iterator[RunTask]:
        assert callable(getattr(Client, client_method))
        self.choices.append((choice, capability))

        def run_task(inputs: Sequence[Any], **arguments: Any) -> list[Any]:
            self.calls.append((list(inputs), arguments))
            results: list[Any] = []
            for index, each in enumerate(inputs):
                try:
                    results.append(self.tasks[capability](each, **arguments))
                except ValueError as error:
                    results.append(InputError(index, str(error)))
            return results

        yield run_task


@pytest.fixture
def models(monkeypatch: pytest.MonkeyPatch) -> FakeModels:
    models = FakeModels()
    for module in ("text", "image"):
        monkeypatch.setattr(f"triptych_cli.encoders.{module}.open_encoder", models.open)
    return models


def test_fill_prints_a_block_for_each_mask_and_passes_its_options_on(run: Run, models: FakeModels) -> None:
    run("fill", "--targets", "paris, lyon", "--top-k", "2", "--model", "m", "--models", "there", "[MASK]")
    assert models.calls == [(["[MASK]"], {"top_k": 2, "targets": ["paris", "lyon"]})]
    assert models.choices == [(ModelChoice(models=Path("there"), model="m"), "fill-mask")]
    assert run("fill", "I see [MASK].").success == " 0.8750  paris  I see paris.\n1.0e-05  lyon   I see lyon.\n\n"
    text = run("fill", "--top-k", "1", "[MASK] or [MASK]", "a [MASK]").success
    assert text.split("\n\n") == [*[" 0.8750  paris  paris or [MASK]"] * 2, " 0.8750  paris  a paris", ""]


def test_bad_texts_are_named_and_the_others_are_done(run: Run, models: FakeModels) -> None:
    result = run("fill", "--json", "--top-k", "1", stdin=b"\xef\xbb\xbfh\xc3\xb4tel [MASK]\n\nno mask\n")
    assert result.code == 1
    assert result.err.splitlines()[0] == "standard input:2: the text is empty"
    candidate = {"score": 0.875, "token": 3, "token_str": "paris", "sequence": "hôtel paris"}
    assert [json.loads(line) for line in result.out.splitlines()] == [
        {"text": "hôtel [MASK]", "token_count": 9, "masks": [[candidate]]},
        {"text": "", "error": "the text is empty"},
        {"text": "no mask", "error": "there is no [MASK]"},
    ]
    assert run("fill", "--fail-fast", "none", "b [MASK]").error == "text 1: there is no [MASK]"
    result = run("fill", "--top-k", "1", "a [MASK]", "none", "b [MASK]")
    assert (result.code, result.err) == (1, "text 2: there is no [MASK]\n")
    assert [line.split()[-2:] for line in result.out.splitlines() if line] == [["a", "paris"], ["b", "paris"]]


def test_several_batches(run: Run, models: FakeModels, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("triptych_cli.encoders.text.BATCH", 2)
    text = run("fill", "--json", stdin="".join(f"{n} [MASK]\n" for n in range(5)).encode()).success
    assert [json.loads(line)["text"] for line in text.splitlines()] == [f"{n} [MASK]" for n in range(5)]
    assert [len(inputs) for inputs, _ in models.calls] == [2, 2, 1]


def test_embed_prints_json(run: Run, models: FakeModels, tmp_path: Path) -> None:
    (tmp_path / "lines.txt").write_text("abc\n" + "a" * 101 + "\nab\n", encoding="utf-8")
    result = run("embed", "-i", tmp_path / "lines.txt", "--pooling", "cls", "--normalize")
    assert (result.code, result.err) == (1, f"{tmp_path / 'lines.txt'}:2: too long\n")
    first, second, third = map(json.loads, result.out.splitlines())
    assert first == {"text": "abc", "token_count": 5, "values": [0.100000001, 3.0]}
    assert (second["error"], third["values"]) == ("too long", [0.100000001, 2.0])
    given = {"pooling": "cls", "normalize": True, "truncate": False, "token_vectors": False, "prompt_name": ""}
    assert models.calls[-1][1] == given
    result = run("embed", "A text.", "a" * 101, "--truncate", "--prompt-name", "query")
    others = {"pooling": None, "normalize": None, "truncate": True, "token_vectors": False, "prompt_name": "query"}
    assert models.calls[-1][1] == others
    assert (result.code, result.err) == (0, "text 2: only the first 5 tokens were read\n")
    assert [json.loads(line).get("truncated") for line in result.out.splitlines()] == [None, True]


def test_embed_adds_the_tokens_with_their_places(run: Run, tmp_path: Path) -> None:
    model = ("--models", write_words(tmp_path).parents[1], "--no-normalize")
    row = json.loads(run("embed", *model, "two one", "--token-vectors").success)
    assert [(token["start"], token["end"]) for token in row["tokens"]] == [(0, 0), (0, 3), (4, 7), (0, 0)]
    assert [token["values"] for token in row["tokens"][1:3]] == [[7, 0, 1, 1], [6, 0, 2, 1]]
    assert "tokens" not in json.loads(run("embed", *model, "two one").success)


def test_neighbors_subtracts_words_with_a_hyphen(run: Run, tmp_path: Path) -> None:
    model = ("--models", write_words(tmp_path).parents[1], "--top-k", "2")
    assert run("neighbors", *model, "five", "-one", "+two").success == " 1.0000  six\n 0.9922  seven\n"
    assert run("neighbors", *model, "-zzz").error == "'zzz' is not in the model's vocabulary"
    result = run("neighbors", *model, "five", "--tok-p", "1")
    assert (result.code, "No such option" in result.err, "--tok-p" in result.err) == (2, True, True)


def test_rerank_prints_the_best_document_first(run: Run, tmp_path: Path) -> None:
    write_cross_encoder(tmp_path)
    model = ("--models", tmp_path, "--top-k", "2")
    assert run("rerank", *model, "zero", stdin=b"one\n\none two\nthree\n").success == " 0.5000  one two\n 0.2689  one\n"
    rows = run("rerank", *model, "--json", "zero", stdin=b"one\n\none two\nthree\n").success.splitlines()
    assert [json.loads(each)["index"] for each in rows] == [2, 0]
    row = {"text": "one two", "token_count": 6, "index": 0, "score": 0.0}
    assert json.loads(run("rerank", *model, "--json", "--raw-scores", "zero", "one two").success) == row
    assert run("rerank", *model, "zero", "one", "two " * 99).error.startswith(
        "text 2: 103 tokens, with those of the query, are too long"
    )
    result = run("rerank", *model, "--truncate", "zero", "two " * 99)
    assert (result.code, result.err) == (0, "text 1: only the first 64 tokens were read\n")


def test_rerank_asks_a_server_that_may_be_away(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call, "FIRST_PAUSE_SECONDS", 0.001)
    away = fail(grpc.StatusCode.UNAVAILABLE, "restarting")
    rejected = fail(grpc.StatusCode.INVALID_ARGUMENT, "too long", bad_field("documents[1]", "too long"))
    with FakeServer(script=[away] * 8) as server:
        command = ("rerank", "--server", server.address, "query")
        assert "restarting" in run(*command, "a").error
        server.script = [rejected]
        assert run(*command, stdin=b"a\n\nb\n").error == "standard input:3: too long"
        server.requests.clear()
        assert run(*command, stdin=b"\n").success == ""
        assert not server.requests


def test_classify_text(run: Run, models: FakeModels) -> None:
    text = run("classify-text", "Great!", "a\tb").success
    assert text == "Great!\n 0.7500  joy\n 0.2500  anger\na\tb\n 0.7500  joy\n 0.2500  anger\n"
    assert models.calls == [(["Great!", ("a", "b")], {"top_k": None, "truncate": False})]
    assert models.choices[0][1] == "text-classification"
    labels = [{"label": "joy", "score": 0.75, "index": 1}]
    found = json.loads(run("classify-text", "--top-k", "1", "--json", "Great!").success)
    assert found == {"text": "Great!", "token_count": 5, "labels": labels}


def test_classify_tokens(run: Run, models: FakeModels) -> None:
    assert run("classify-tokens", "Ann ran.").success == "Ann ran.\n 0.5000  PER  Ann\n\n"
    found = json.loads(run("classify-tokens", "--aggregation", "none", "--json", "Ann ran.").success)
    entities = [{"label": "PER", "score": 0.5, "text": "Ann", "start": 0, "end": 3}]
    assert found == {"text": "Ann ran.", "token_count": 5, "entities": entities}
    assert [arguments["aggregation"] for _, arguments in models.calls] == [None, "none"]


def test_answers_with_one_context_or_one_for_each_question(run: Run, models: FakeModels, tmp_path: Path) -> None:
    file = tmp_path / "context.txt"
    file.write_text("Now.", encoding="utf-8")
    assert run("answer", "--context", "Here it is.", "Where?").success == "Where?\n 0.5000  Here\n\n"
    found = json.loads(run("answer", "--context-file", str(file), "--top-k", "3", "--json", "When?").success)
    answers = [{"text": "Now.", "score": 0.5, "start": 0, "end": 4}]
    assert json.loads(run("answer", "-c", "Now.", "--json", "When\tthen?").success)["text"] == "When\tthen?"
    assert models.calls.pop()[0] == [("When\tthen?", "Now.")]
    assert found == {"text": "When?", "token_count": 9, "answers": answers}
    assert models.calls == [
        ([("Where?", "Here it is.")], {"top_k": 1, "max_answer_length": 15}),
        ([("When?", "Now.")], {"top_k": 3, "max_answer_length": 15}),
    ]
    result = run("answer", "--context", "x", "--context-file", str(file), "When?")
    assert (result.code, "--context or --context-file, not both" in result.err) == (2, True)
    result = run("answer", "--context-file", "-", stdin=b"A context, and no question.")
    assert (result.code, "standard input would be read twice" in result.err) == (2, True)
    result = run("answer", "Where?\tHere it is.", "When?")
    assert result.out == "Where?\n 0.5000  Here\n\n"
    assert result.code == 1
    assert result.err == "text 2: there is no context: give --context, or a tab and the context behind the question\n"


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    for name, content in (("a.png", b"abc"), ("bad.png", b"bad"), ("c.png", b"c")):
        (tmp_path / name).write_bytes(content)
    return tmp_path


def test_classify_prints_a_block_for_each_image(run: Run, models: FakeModels, photos: Path) -> None:
    rows = [" 0.7500  tabby", " 0.1250  tiger cat"]
    text = run("classify", photos / "a.png", photos / "c.png").out
    assert text.splitlines() == [str(photos / "a.png"), *rows, str(photos / "c.png"), *rows]
    assert run("classify", "--top-k", "1", photos / "a.png").out == f"{photos / 'a.png'}  0.7500  tabby\n"
    note = "the embedded model knows ten classes only; triptych classify --help names them\n"
    assert run("classify", photos / "a.png").err == note
    assert run("classify", photos / "a.png", "--models", photos).err == ""
    (photos / ".hidden").mkdir()
    (photos / ".hidden" / "d.png").write_bytes(b"d")
    (photos / "bad.png").rename(photos / "bad.txt")
    assert run("classify", photos).out == text
    (photos / "empty").mkdir()
    assert run("classify", photos / "empty").err.endswith("a folder without JPEG, PNG or WebP files\n")


@pytest.mark.parametrize("arguments", [[], ["-"]])
def test_classify_reads_standard_input(run: Run, models: FakeModels, arguments: list[str]) -> None:
    assert run("classify", "--top-k", "1", *arguments, stdin=b"an image").out == "standard input  0.7500  tabby\n"


def test_bad_images_are_named_and_the_others_are_done(run: Run, models: FakeModels, photos: Path) -> None:
    names = [str(photos / name) for name in ("a.png", "missing.png", "a" * 300, "bad.png", "c.png")]
    result = run("classify", "--json", "--top-k", "1", *names)
    assert result.code == 1
    unread = ["cannot be read: No such file or directory", "cannot be read: File name too long"]
    problems = [*unread, "no JPEG, PNG or WebP file"]
    assert result.err.splitlines() == [f"{name}: {problem}" for name, problem in zip(names[1:4], problems, strict=True)]
    rows = [json.loads(line) for line in result.out.splitlines()]
    assert [row["photo"] for row in rows] == names
    assert [row.get("error") for row in rows] == [None, *problems, None]
    assert rows[0]["labels"] == [{"label": "tabby", "score": 0.75, "index": 281}]
    assert (rows[4]["width"], rows[4]["height"]) == (1, 2)


@pytest.mark.parametrize(("command", "task"), [("fill", "fill-mask"), ("classify", "image-classification")])
def test_a_failed_call_is_one_line(run: Run, models: FakeModels, command: str, task: str) -> None:
    def fail(*_: object, **__: object) -> None:
        raise BackendError("no model\ncan do it")

    models.tasks[task] = fail
    result = run(command, "-", stdin=b"text\n")
    assert (result.code, result.error) == (1, "no model can do it")


@pytest.mark.parametrize(("command", "arguments"), [("fill", ["[MASK]"]), ("embed", ["a"])])
def test_an_engine_in_this_process(run: Run, command: str, arguments: list[str]) -> None:
    assert run(command, "--models", ENCODER_MODELS, *arguments).success
