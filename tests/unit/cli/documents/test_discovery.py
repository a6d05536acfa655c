"""Finding documents, and the places of their translations."""

import os
from pathlib import Path
from typing import Any

import click
import pytest

from triptych_cli.documents.discovery import Selection, destination, discover
from triptych_documents.errors import UnknownFormatError

from .fakes import write

FILES = {"a.txt": "", "sub/b.md": "", "sub/deep/c.HTML": "", "image.png": "", ".git/d.txt": "", ".hidden.txt": ""}


def names(out: Path, *paths: Path, **settings: Any) -> list[str]:
    return [found.name for found in discover(paths, out, settings.pop("selection", Selection()), **settings)]


def test_a_folder_is_mirrored_without_hidden_files_and_the_output(tmp_path: Path) -> None:
    folder = write(tmp_path, {**FILES, "out/a.txt": ""})
    found = discover([folder, folder / "a.txt"], folder / "out", Selection())
    assert [(each.name, each.format_name) for each in found] == [
        ("a.txt", "text"),
        ("image.png", ""),
        ("sub/b.md", "markdown"),
        ("sub/deep/c.HTML", "html"),
    ]


@pytest.mark.parametrize(
    ("selection", "expected"),
    [
        (Selection(include=["*.md"]), ["sub/b.md"]),
        (Selection(include=["sub/*"]), ["sub/b.md", "sub/deep/c.HTML"]),
        (Selection(exclude=["sub/*", "*.png"]), ["a.txt"]),
        (Selection(include=["*.md", "*.txt"], exclude=["a.*"]), ["sub/b.md"]),
    ],
)
def test_patterns(tmp_path: Path, selection: Selection, expected: list[str]) -> None:
    assert names(tmp_path / "out", write(tmp_path / "in", FILES), selection=selection) == expected


def test_sizes_and_formats_of_named_files(tmp_path: Path) -> None:
    file, out = write(tmp_path, {"a.msg": ""}) / "a.msg", tmp_path / "out"
    assert [found.format_name for found in discover([file], out, Selection(format="text"))] == ["text"]
    with pytest.raises(UnknownFormatError, match=r"a\.msg' is not a supported document"):
        discover([file], out, Selection())
    assert [found.format for found in discover([file], out, Selection(), takes_others=True)] == [None]
    write(tmp_path, {"in/a.txt": "abc"})
    (tmp_path / "in" / "b.txt").symlink_to(tmp_path / "nowhere")
    assert [found.size for found in discover([tmp_path / "in"], tmp_path / "out", Selection())] == [3, 0]


def test_files_of_qt_are_told_from_typescript(tmp_path: Path) -> None:
    files = {"a.ts": "<?xml version='1.0'?>\n<!DOCTYPE TS>\n<TS/>", "b.ts": "export const a = 1;", "c_de.TS": "<TS/>"}
    folder, out = write(tmp_path / "in", files), tmp_path / "out"
    found = discover([folder], out, Selection())
    assert [(each.name, each.format_name) for each in found] == [("a.ts", "qt-ts"), ("b.ts", ""), ("c_de.TS", "qt-ts")]
    (folder / "c_de.TS").unlink()
    named = [*discover([folder / "b.ts"], out, Selection()), *discover([folder], out, Selection(format="text"))]
    assert [each.format_name for each in named] == ["qt-ts", "text", "text"]


def test_colliding_outputs_are_errors(tmp_path: Path) -> None:
    one, two, pairs = (write(tmp_path / name, {"a.txt": "", "b.png": ""}) for name in ("one", "two", "pairs"))
    write(pairs, {"a.txt.tsv": ""})
    out = tmp_path / "out"
    for arguments in ((one, two), (one / "b.png", two / "b.png")):
        with pytest.raises(click.UsageError, match="would both become"):
            names(out, *arguments, takes_others=True)
    with pytest.raises(click.UsageError, match=r"would both become .*a\.txt\.tsv"):
        names(out, pairs, beside=".tsv")
    with pytest.raises(click.UsageError, match="its own translation"):
        names(one, one / "a.txt")
    assert names(out, pairs, beside=".xlf") == ["a.txt", "a.txt.tsv", "b.png"]
    only_images = Selection(include=["*.png"])
    assert names(out, one, two, selection=only_images) == ["b.png", "b.png"]  # both are ignored


def test_pipes_and_linked_folders_in_a_folder_are_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write(tmp_path / "in", {"a.txt": "one"})
    os.mkfifo(folder / "b.txt")
    (folder / "link").symlink_to(write(tmp_path / "other", FILES))
    assert names(tmp_path / "out", folder) == ["a.txt"]
    problems = ["link: left out, it is a link to a folder", "b.txt: left out, it is not a plain file"]
    assert capsys.readouterr().err.splitlines() == [f"{folder}/{problem}" for problem in problems]


@pytest.mark.parametrize(
    ("paths", "out", "format_name", "problem"),
    [
        (["a.docx"], "b.odt", "", "is named as another format than a.docx"),
        (["a.txt"], "b.md", "", "is named as another format than a.txt"),
        (["a.md", "b.html"], "x.md", "", "takes the translation of one document"),
        (["a.txt"], "b.md", "markdown", ""),
        (["a.md"], "b.markdown", "", ""),
        (["a.msg"], "b.msg", "text", ""),
        (["a.md"], "b.md", "text", ""),
    ],
)
def test_the_name_of_a_translation_keeps_its_format(paths: list[str], out: str, format_name: str, problem: str) -> None:
    sources = list(map(Path, paths))
    if problem:
        with pytest.raises(click.UsageError, match=f"--out {out} {problem}"):
            destination(sources, Path(out), format_name)
    else:
        assert destination(sources, Path(out), format_name) == (Path(), out)
