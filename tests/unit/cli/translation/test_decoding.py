"""`triptych translate` with decoding options and --json, with the engine in this process."""

import json
from dataclasses import fields
from typing import Any, NoReturn

import pytest

from triptych.decoding import DecodingOptions, SplitSentences
from triptych_embedded.request import BackendError, TranslationRequest

from ....fixtures.toy import MODELS, SOURCE, SOURCES, TARGET, TARGETS
from ..conftest import Result, Run

Toy = ("translate", "--models", MODELS)


def objects(result: Result) -> list[dict[str, Any]]:
    return [json.loads(line) for line in result.success.splitlines()]


def test_json_has_hypotheses_scores_and_alignment(run: Run) -> None:
    blank, found = objects(run(*Toy, "--json", stdin=f"\n{SOURCE}\n".encode()))
    assert blank == {"text": "", "translation": "", "hypotheses": [], "source_token_count": 0}
    assert found.keys() == {"text", "translation", "hypotheses", "source_token_count"}
    assert (found["text"], found["translation"]) == (SOURCE, TARGET)
    assert found["hypotheses"] == [{"text": TARGET, "finish_reason": "stop", "token_count": 14}]
    arguments = ["--beam-size", "4", "--num-hypotheses", "3", "--return-scores", "--return-alignment"]
    [found] = objects(run(*Toy, "--json", *arguments, SOURCE))
    scores = [hypothesis["score"] for hypothesis in found["hypotheses"]]
    assert scores == sorted(scores, reverse=True)
    assert len(scores) == 3
    for hypothesis in found["hypotheses"]:
        assert len(hypothesis["alignment"]) == hypothesis["token_count"]
        assert {len(weights) for weights in hypothesis["alignment"]} == {found["source_token_count"]}
        text = hypothesis["text"]
        assert "".join(text[start:end] for start, end in hypothesis["tokens"]) == text.replace(" ", "")
    assert "".join(SOURCE[start:end] for start, end in found["source_tokens"]) == SOURCE.replace(" ", "")


def test_prefixes_and_sentences(run: Run) -> None:
    found = run(*Toy, "--target-prefix", "Das", *SOURCES[:2]).out.splitlines()
    assert all(line.startswith("Das") for line in found)
    text = " ".join(SOURCES[:6])
    assert run(*Toy, text).out == " ".join(TARGETS[:6]) + "\n"


@pytest.mark.parametrize("stream", [[], ["--stream"]])
def test_suppressed_texts_do_not_occur(run: Run, stream: list[str]) -> None:
    found = run(*Toy, *stream, "--suppress", "Der", "--suppress", "Haus", SOURCE).out
    assert not {"Der", "Haus"} & set(found.replace(".", "").split())


def test_a_variable_that_needs_json_is_named(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIPTYCH_RETURN_SCORES", "1")
    assert run(*Toy, SOURCE).error.startswith("TRIPTYCH_RETURN_SCORES needs --json")


def test_options_from_the_environment(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIPTYCH_SUPPRESS", "Der Mann\nHaus")
    monkeypatch.setenv("TRIPTYCH_MIN_LENGTH", "30")
    monkeypatch.setenv("TRIPTYCH_BEAM_SIZE", "2")
    [found] = objects(run(*Toy, "--json", SOURCE))
    assert found["hypotheses"][0]["token_count"] >= 30
    assert not any(text in found["translation"] for text in ("Der Mann", "Haus"))


BAD = [
    (["--return-scores"], 2, "--return-scores needs --json"),
    (["--return-alignment"], 2, "--return-alignment needs --json"),
    (["--num-hypotheses", "2", "--beam-size", "2"], 2, "--num-hypotheses needs --json"),
    (["--json", "--stream"], 2, "--stream shows text, not --json"),
    (["--beam-size", "33"], 1, "options.beam_size: 33 is above the limit of 32, the engine's slots"),
    (["--beam-size", "0"], 2, "0 is not in the range"),
    (["--beam-size", "4294967296"], 2, "4294967296 is not in the range"),
    (["--length-penalty", "nan"], 1, "options.length_penalty: nan is out of range"),
    (["--suppress", ""], 1, "options.suppress_sequences[0]: the text is empty"),
    (["--split-sentences", "maybe"], 2, "'maybe' is not one of 'auto', 'off'"),
]


@pytest.mark.parametrize(("arguments", "code", "error"), BAD)
def test_a_bad_option_is_one_line(run: Run, arguments: list[str], code: int, error: str) -> None:
    result = run(*Toy, *arguments, "a")
    assert result.code == code
    assert error in result.error


def test_every_option_has_a_flag_that_reaches_the_backend(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[DecodingOptions] = []

    def note(request: TranslationRequest) -> NoReturn:
        asked.append(request.decoding)
        raise BackendError("enough")

    monkeypatch.setattr("triptych_cli.translation.translate.open_backend", note)
    flags = {
        **{"beam-size": 2, "patience": 1.5, "num-hypotheses": 2, "length-penalty": 0.5, "coverage-penalty": 0.1},
        **{"repetition-penalty": 1.1, "no-repeat-ngram-size": 3, "min-length": 4, "max-length": 5},
        **{"sampling-temperature": 0.5, "sampling-topk": 6, "sampling-topp": 0.7, "sampling-minp": 0.1, "seed": 8},
        **{"presence-penalty": 0.2, "frequency-penalty": 0.3},
        **{"suppress": "x", "target-prefix": "p", "split-sentences": "off"},
    }
    arguments = [part for name, value in flags.items() for part in (f"--{name}", str(value))]
    run("translate", "--json", "--return-scores", "--return-alignment", *arguments, "a")
    special = {"suppress_sequences": ("x",), "target_prefix": ("p",), "split_sentences": SplitSentences.OFF}
    switches = {"return_scores": True, "return_alignment": True}
    plain = {name.replace("-", "_"): value for name, value in flags.items()}
    values = {option.name: plain.get(option.name) for option in fields(DecodingOptions)} | special | switches
    assert None not in values.values()
    assert asked == [DecodingOptions(**values)]
