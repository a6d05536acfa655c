"""Inputs from files."""

import gzip
from pathlib import Path

import pytest

from triptych_bench.inputs.reading import read_inputs
from triptych_bench.target import TargetError
from triptych_bench.tasks import Kind


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_a_line_is_a_text(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", "\ufefffirst\ttab\r\n\n  second \n")
    found = read_inputs(path, Kind.TEXT, None)
    assert [(one.data, one.name, one.reference) for one in found] == [
        ("first\ttab", "a.txt:1", None),
        ("  second ", "a.txt:3", None),
    ]


def test_tables_have_references(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv.gz"
    path.write_bytes(gzip.compress(b"one\teins\ntwo\n"))
    assert [(one.data, one.reference) for one in read_inputs(path, Kind.TEXT, None)] == [("one", "eins"), ("two", None)]


def test_pairs(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", "one\teins\tright\ntwo\tzwei\n")
    found = read_inputs(path, Kind.PAIR, None)
    assert [(one.data, one.reference) for one in found] == [(("one", "eins"), "right"), (("two", "zwei"), None)]
    mixed = read_inputs(write(tmp_path / "b.txt", "one\ntwo\tzwei\n"), Kind.TEXT_OR_PAIR, None)
    assert [one.data for one in mixed] == ["one", ("two", "zwei")]


def test_references_belong_to_lines(tmp_path: Path) -> None:
    path, references = write(tmp_path / "a.txt", "one\n\nthree\n"), write(tmp_path / "b.txt", "1\n2\n3\n")
    assert [one.reference for one in read_inputs(path, Kind.TEXT, references)] == ["1", "3"]
    with pytest.raises(TargetError, match=r"b\.txt: 2 references for the 3 lines of .*a\.txt"):
        read_inputs(path, Kind.TEXT, write(references, "1\n2\n"))


def test_an_image_is_named_by_its_folder(tmp_path: Path) -> None:
    for name in ("cat/1.png", "dog/2.JPG", "3.webp", "notes.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(name.encode())
    found = read_inputs(tmp_path, Kind.IMAGE, None)
    assert {(one.name, one.reference, one.data) for one in found} == {
        ("3.webp", None, b"3.webp"),
        ("cat/1.png", "cat", b"cat/1.png"),
        ("dog/2.JPG", "dog", b"dog/2.JPG"),
    }
    assert [one.data for one in read_inputs(tmp_path / "3.webp", Kind.IMAGE, None)] == [b"3.webp"]


@pytest.mark.parametrize(
    ("content", "kind", "problem"),
    [
        (b"", Kind.TEXT, "there are no inputs in it"),
        (b"\n \n", Kind.TEXT, "there are no inputs in it"),
        (b"good\n\xff\n", Kind.TEXT, r"a\.txt:2: not UTF-8"),
        (b"good\tgut\nbad\n", Kind.PAIR, r"a\.txt:2: not two texts with a tab between them"),
        (b"bad\t \n", Kind.TEXT_OR_PAIR, r"a\.txt:1: not two texts with a tab between them"),
    ],
)
def test_what_cannot_be_used_is_named(tmp_path: Path, content: bytes, kind: Kind, problem: str) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(content)
    with pytest.raises(TargetError, match=problem):
        read_inputs(path, kind, None)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(TargetError, match=r"nothing\.txt: cannot be read: No such file"):
        read_inputs(tmp_path / "nothing.txt", Kind.TEXT, None)
    with pytest.raises(TargetError, match=r"nothing\.png: cannot be read: No such file"):
        read_inputs(tmp_path / "nothing.png", Kind.IMAGE, None)
    cut = tmp_path / "cut.txt.gz"
    cut.write_bytes(gzip.compress(b"text" * 1_000)[:-20])
    with pytest.raises(TargetError, match=r"cut\.txt\.gz: cannot be read"):
        read_inputs(cut, Kind.TEXT, None)
