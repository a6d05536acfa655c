"""Batches with bad inputs, and the format of scores."""

import sys
from collections.abc import Sequence
from pathlib import Path

import click
import pytest

from triptych_cli.common.lines import open_writer, run_each, score_number, score_text
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
