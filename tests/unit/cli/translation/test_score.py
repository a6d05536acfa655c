"""`triptych score`, with the engine in this process."""

import json
from pathlib import Path

import pytest

from ....fixtures.toy import MODELS, PAIRS, SOURCE, TARGET, TARGETS
from ..conftest import Run

Toy = ("score", "--models", MODELS)


def test_the_right_translation_is_likelier(run: Run) -> None:
    right, wrong = (float(run(*Toy, SOURCE, target).out) for target in TARGETS[:2])
    assert 0 >= right > -0.1 > -5 > wrong


def test_json(run: Run) -> None:
    found = json.loads(run(*Toy, "--json", SOURCE, TARGET).out)
    assert (found["source"], found["target"]) == (SOURCE, TARGET)
    assert sum(found["token_log_probabilities"]) == pytest.approx(found["log_probability"], abs=1e-5)


@pytest.mark.parametrize("batch", [7, 1_024])
def test_lines_of_a_file(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batch: int) -> None:
    monkeypatch.setattr("triptych_embedded.models.EmbeddedBackend.batch", batch)
    file = tmp_path / "pairs.tsv"
    file.write_text("".join(f"{source}\t{target}\n" for source, target in PAIRS[:30]), encoding="utf-8")
    found = [float(line) for line in run(*Toy, "-i", file).out.splitlines()]
    assert len(found) == 30
    assert min(found) > -1


def test_a_pipe(run: Run) -> None:
    assert len(run(*Toy, stdin=f"{SOURCE}\t{TARGET}\n".encode()).out.splitlines()) == 1


BAD = [
    ([SOURCE], b"", 2, "give SOURCE and TARGET, or lines of both"),
    ([SOURCE, TARGET, "-i", "x.tsv"], b"", 2, "give SOURCE and TARGET or --input, not both"),
    ([SOURCE, " "], b"", 1, "text 2: the text is empty"),
    ([], b"a\tb\nno tab\n", 1, "standard input:2: not a source, a tab and a target"),
    ([], b"a\tb\tc\n", 1, "standard input:1: not a source, a tab and a target"),
    ([], b"a\tb\na\t\n", 1, "standard input:2: the text is empty"),
    ([], f"a\tb\n{'1 ' * 50}\tb\n".encode(), 1, "standard input:2: 102 tokens are too long"),
    (["1 " * 50, TARGET], b"", 1, "the pair: 102 tokens are too long, the model takes at most 64"),
    (["--model", "foo", "a", "b"], b"", 1, "model 'foo' is not in"),
]


@pytest.mark.parametrize(("arguments", "stdin", "code", "error"), BAD)
def test_a_bad_command_is_refused_in_one_line(run: Run, arguments: list[str], stdin: bytes, code: int, error: str) -> None:
    result = run(*Toy, *arguments, stdin=stdin)
    assert result.code == code
    assert error in result.error
