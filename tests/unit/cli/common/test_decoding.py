"""`triptych translate` with options, and its JSON; with the engine in this process."""

import json
from typing import Any

import pytest

from triptych_cli.common.decoding import Decoding
from triptych_embedded import request as backend
from triptych_embedded.request import Backend, Request

from ....fixtures.toy import MODELS, SOURCE, SOURCES, TARGET, TARGETS
from ..conftest import Result, Run

Toy = ("translate", "--models", MODELS)


def objects(result: Result) -> list[dict[str, Any]]:
    """Its lines, of a command that has nothing to complain of."""
    assert (result.code, result.err) == (0, "")
    return [json.loads(line) for line in result.out.splitlines()]


def test_json(run: Run) -> None:
    [found] = objects(run(*Toy, "--json", SOURCE))
    assert found.keys() == {"text", "translation", "hypotheses", "source_token_count"}
    assert (found["text"], found["translation"]) == (SOURCE, TARGET)
    [hypothesis] = found["hypotheses"]
    assert hypothesis == {"text": TARGET, "finish_reason": "stop", "token_count": 14}


def test_json_of_a_blank_line(run: Run) -> None:
    found = objects(run(*Toy, "--json", stdin=f"\n{SOURCE}\n".encode()))
    assert found[0] == {"text": "", "translation": "", "hypotheses": [], "source_token_count": 0}
    assert found[1]["translation"] == TARGET


def test_hypotheses_scores_and_alignment(run: Run) -> None:
    arguments = ["--beam-size", "4", "--num-hypotheses", "3", "--return-scores", "--return-alignment"]
    [found] = objects(run(*Toy, "--json", *arguments, SOURCE))
    scores = [hypothesis["score"] for hypothesis in found["hypotheses"]]
    assert scores == sorted(scores, reverse=True)
    assert len(scores) == 3
    for hypothesis in found["hypotheses"]:
        assert len(hypothesis["alignment"]) == hypothesis["token_count"]
        assert {len(weights) for weights in hypothesis["alignment"]} == {found["source_token_count"]}
        assert "".join(hypothesis["text"][start:end] for start, end in hypothesis["tokens"]) == hypothesis["text"].replace(
            " ", ""
        )
    assert "".join(SOURCE[start:end] for start, end in found["source_tokens"]) == SOURCE.replace(" ", "")


def test_beams_give_one_line_a_text(run: Run) -> None:
    assert run(*Toy, "--beam-size", "4", *SOURCES[:3]).out.splitlines() == TARGETS[:3]


def test_a_prefix_is_every_lines(run: Run) -> None:
    found = run(*Toy, "--target-prefix", "Das", *SOURCES[:2]).out.splitlines()
    assert all(line.startswith("Das") for line in found)


@pytest.mark.parametrize("stream", [[], ["--stream"]])
def test_what_is_suppressed(run: Run, stream: list[str]) -> None:
    found = run(*Toy, *stream, "--suppress", "Der", "--suppress", "Haus", SOURCE).out
    assert not {"Der", "Haus"} & set(found.replace(".", "").split())


def test_suppressed_texts_are_lines_of_the_environment(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIPTYCH_SUPPRESS", "Der Mann\nHaus")
    found = run(*Toy, SOURCE).out
    assert "Der Mann" not in found
    assert "Haus" not in found


def test_options_from_the_environment(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIPTYCH_MIN_LENGTH", "30")
    monkeypatch.setenv("TRIPTYCH_BEAM_SIZE", "2")
    [found] = objects(run(*Toy, "--json", SOURCE))
    assert found["hypotheses"][0]["token_count"] >= 30


def test_a_seed_repeats_a_sample(run: Run) -> None:
    arguments = ["--sampling-topk", "0", "--sampling-temperature", "3", "--seed", "4"]
    first, second = (run(*Toy, *arguments, SOURCE).out for _ in range(2))
    assert first == second != f"{TARGET}\n"


def test_sentences_are_split_unless_told_otherwise(run: Run) -> None:
    text = " ".join(SOURCES[:6])
    assert run(*Toy, text).out == " ".join(TARGETS[:6]) + "\n"
    assert "too long" in run(*Toy, "--split-sentences", "off", text).error


BAD = [
    (["--return-scores"], 2, "--return-scores needs --json"),
    (["--return-alignment"], 2, "--return-alignment needs --json"),
    (["--num-hypotheses", "2", "--beam-size", "2"], 2, "--num-hypotheses needs --json"),
    (["--json", "--stream"], 2, "--stream shows text, not --json"),
    (["--beam-size", "33"], 1, "options.beam_size: 33 is above the limit of 32, the engine's slots"),
    (["--beam-size", "-1"], 2, "-1 is not in the range"),
    (["--beam-size", "4294967296"], 2, "4294967296 is not in the range"),
    (["--length-penalty", "nan"], 1, "options.length_penalty: nan is out of range"),
    (["--suppress", " "], 1, "options.suppress_sequences[0]: the text is empty"),
    (["--split-sentences", "maybe"], 2, "'maybe' is not one of 'auto', 'off'"),
]


@pytest.mark.parametrize(("arguments", "code", "error"), BAD)
def test_a_bad_option_is_refused_in_one_line(run: Run, arguments: list[str], code: int, error: str) -> None:
    result = run(*Toy, *arguments, "a")
    assert result.code == code
    assert error in result.error


def test_every_option_reaches_the_backend(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Decoding] = []

    def note(request: Request) -> Backend:
        asked.append(request.decoding)
        raise backend.BackendError("as far as this goes")

    monkeypatch.setattr("triptych_cli.translation.translate.open_backend", note)
    numbers = {
        **{"beam-size": 2, "patience": 1.5, "num-hypotheses": 2, "length-penalty": 0.5, "coverage-penalty": 0.1},
        **{"repetition-penalty": 1.1, "no-repeat-ngram-size": 3, "min-length": 4, "max-length": 5},
        **{"sampling-temperature": 0.5, "sampling-topk": 6, "sampling-topp": 0.7, "seed": 8},
    }
    arguments = [part for name, value in numbers.items() for part in (f"--{name}", str(value))]
    texts = ["--suppress", "x", "--suppress", "y z", "--target-prefix", "p", "--split-sentences", "off"]
    run("translate", "--json", "--return-scores", "--return-alignment", *arguments, *texts, "a")
    assert asked == [
        Decoding(
            **{name.replace("-", "_"): value for name, value in numbers.items()},  # type: ignore[arg-type]
            suppress_sequences=("x", "y z"),
            target_prefix="p",
            return_scores=True,
            return_alignment=True,
            split_sentences="off",
        )
    ]
