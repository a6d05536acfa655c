"""`triptych score`, with the engine in this process."""

import json
from pathlib import Path

import pytest

from ....fixtures.toy import MODELS, PAIRS, SOURCE, TARGET, TARGETS
from ..conftest import Run

Toy = ("score", "--models", MODELS)


def test_the_right_translation_has_the_higher_score(run: Run) -> None:
    right, wrong = (float(run(*Toy, SOURCE, target).out) for target in TARGETS[:2])
    assert 0 >= right > -0.1 > -5 > wrong
    found = json.loads(run(*Toy, "--json", stdin=f"{SOURCE}\t{TARGET}\n".encode()).success)
    assert (found["source"], found["target"]) == (SOURCE, TARGET)
    assert sum(found["token_log_probabilities"]) == pytest.approx(found["log_probability"], abs=1e-5)


def test_a_file_with_several_batches(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("triptych_cli.translation.backend.EmbeddedBackend.batch", 7)
    file = tmp_path / "pairs.tsv"
    file.write_text("".join(f"{source}\t{target}\n" for source, target in PAIRS[:30]), encoding="utf-8")
    found = [float(line) for line in run(*Toy, "-i", file).success.splitlines()]
    assert len(found) == 30
    assert min(found) > -1


BAD = [
    ([SOURCE], b"", 2, "give SOURCE and TARGET, or lines of both"),
    ([SOURCE, TARGET, "-i", "x.tsv"], b"", 2, "give SOURCE and TARGET or --input, not both"),
    ([SOURCE, " "], b"", 1, "text 2: the text is empty"),
    ([], b"a\tb\nno tab\n", 1, "standard input:2: not a source, a tab and a target"),
    ([], b"a\tb\tc\n", 1, "standard input:1: not a source, a tab and a target"),
    ([], b"a\tb\na\t\n", 1, "standard input:2: the text is empty"),
    ([], f"a\tb\n{'1 ' * 50}\tb\n".encode(), 1, "standard input:2: 102 tokens are too long"),
    (["1 " * 50, TARGET], b"", 1, "the pair: 102 tokens are too long, the model takes at most 64"),
]


@pytest.mark.parametrize(("arguments", "stdin", "code", "error"), BAD)
def test_a_bad_pair_is_named_in_one_line(run: Run, arguments: list[str], stdin: bytes, code: int, error: str) -> None:
    result = run(*Toy, *arguments, stdin=stdin)
    assert result.code == code
    [line] = result.err.splitlines()
    assert error in line
    if code == 1 and stdin:
        assert "" in result.out.splitlines()
        assert error in run(*Toy, "--fail-fast", *arguments, stdin=stdin).error
