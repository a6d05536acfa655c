"""Batches with bad inputs, and the format of scores."""

import io
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from triptych_cli.common.lines import (
    batches,
    json_row,
    open_writer,
    read_binary,
    read_lines,
    run_each,
    score_number,
    score_text,
)
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


def test_a_byte_order_mark_counts_for_the_place_of_a_fault(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbfb\xff\nb\xff\n")
    problems = [line.problem for line in read_lines((), tmp_path / "a.txt")]
    assert problems == [f"not UTF-8 (invalid start byte at byte {place})" for place in (4, 1)]


def test_a_batch_ends_where_a_pipe_is_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that writes line by line gets the results of those that it has written."""
    reader, writer = os.pipe()
    with open(reader, encoding="utf-8") as stdin, open(writer, "wb", buffering=0) as pipe:
        monkeypatch.setattr(sys, "stdin", stdin)
        found = batches(read_lines(["-"], None), 3)
        for written, texts in ((b"a\n", ["a"]), (b"b\nc\nd", ["b", "c"]), (b"d\ne\nf\ng\n", ["dd", "e", "f"])):
            pipe.write(written)
            assert [line.text for line in next(found)] == texts
        pipe.write(b"\nh")
        pipe.close()
        assert [[line.text for line in batch] for batch in found] == [["g", "", "h"]]


@pytest.mark.parametrize(
    ("score", "text"),
    [
        (1.0, "1.0000"),
        (0.0001, "0.0001"),
        (0.00001234, "1.2e-05"),
        (0.0, "0.0000"),
        (-2.71828, "-2.7183"),
        (-0.00001234, "-1.2e-05"),
    ],
)
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


def test_closed_standard_input_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(click.ClickException, match="standard input is closed; give it a file or a pipe"):
        read_binary("-")


def test_a_name_that_is_not_utf_8_is_escaped_as_in_json(tmp_path: Path) -> None:
    with open_writer(tmp_path / "out.txt") as output:
        output.write(json_row(photo="a\udcff.jpg"))
    assert (tmp_path / "out.txt").read_text() == '{"photo": "a\\udcff.jpg"}'


def test_a_file_that_cannot_be_continued_is_replaced_as_a_whole_or_not_at_all(tmp_path: Path) -> None:
    target = tmp_path / "out.txt"
    target.write_text("before")
    with pytest.raises(ZeroDivisionError), open_writer(target) as output:
        assert output.write("half") / 0
    assert (target.read_text(), list(tmp_path.iterdir())) == ("before", [target])


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
        def read1(self, size: int | None = -1, /) -> bytes:
            raise OSError(5, "Input/output error")

    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(Damaged()))
    problem = "standard input: cannot be read: Input/output error"
    with pytest.raises(click.ClickException, match=problem), open_writer(tmp_path / "out.txt"):
        list(read_lines((), None))
