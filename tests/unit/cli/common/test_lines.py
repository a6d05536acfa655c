"""Batches with bad inputs, and the format of scores."""

import io
import sys
from collections.abc import Sequence
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from triptych_cli.common.lines import open_writer, read_lines, run_each, score_number, score_text
from triptych_cli.common.options import line_file
from triptych_embedded.request import InputError


def test_a_batch_is_run_again_without_a_bad_input() -> None:
    calls: list[list[int]] = []

    def run_some(numbers: Sequence[int]) -> list[int]:
        calls.append(list(numbers))
        for index, number in enumerate(numbers):
            if number < 0:
                raise InputError(index, f"{number} is negative")
        return [10 * number for number in numbers]

    outcomes = run_each(run_some, [1, -2, 3])
    assert [str(outcome) for outcome in outcomes] == ["10", "-2 is negative", "30"]
    assert calls == [[1, -2, 3], [1, 3]]
    assert run_each(run_some, []) == []


@pytest.mark.parametrize(("score", "text"), [(1.0, "1.0000"), (0.0001, "0.0001"), (0.00001234, "1.2e-05"), (0.0, "0.0000")])
def test_scores_are_short(score: float, text: str) -> None:
    assert score_text(score) == text


def test_scores_have_the_digits_of_a_float32() -> None:
    assert score_number(0.10000000149011612) == 0.1


def test_closed_standard_output_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    with pytest.raises(click.ClickException, match="standard output is closed"), open_writer():
        pass
    with open_writer(tmp_path / "out.txt") as output:
        output.write("a")
    assert (tmp_path / "out.txt").read_text() == "a"


def test_a_name_that_is_too_long_is_the_users_own(tmp_path: Path) -> None:
    target = tmp_path / ("a" * 250)
    with pytest.raises(click.ClickException, match=f"^{target}: cannot be written: File name too long"), open_writer(target):
        pass


def test_dev_stdout_is_standard_output() -> None:
    shown = click.Command("show", params=[], callback=lambda target: click.echo(repr(target)))
    shown = line_file("-o", "target", help="")(shown)
    assert CliRunner().invoke(shown, ["-o", "/dev/stdout"]).output == "None\n"


def test_an_error_of_reading_names_the_input(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class Damaged(io.BytesIO):
        def __next__(self) -> bytes:
            raise OSError(5, "Input/output error")

    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(Damaged()))
    problem = "standard input: cannot be read: Input/output error"
    with pytest.raises(click.ClickException, match=problem), open_writer(tmp_path / "out.txt"):
        list(read_lines((), None))
