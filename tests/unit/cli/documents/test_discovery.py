"""Finding documents, and the places of their translations."""

from pathlib import Path

import click
import pytest

from triptych_cli.documents.discovery import Selection, discover
from triptych_documents.errors import UnknownFormatError

from .fakes import write

FILES = {"a.txt": "", "sub/b.md": "", "sub/deep/c.HTML": "", "image.png": "", ".git/d.txt": "", ".hidden.txt": ""}


def names(folder: Path, selection: Selection) -> list[str]:
    return [found.name for found in discover([folder], folder.parent / "out", selection)]


def test_a_folder_is_mirrored_without_what_is_hidden(tmp_path: Path) -> None:
    folder = write(tmp_path / "in", FILES)
    found = discover([folder], tmp_path / "out", Selection())
    assert [(each.name, each.format and each.format.name) for each in found] == [
        ("a.txt", "text"),
        ("image.png", None),
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
    assert names(write(tmp_path / "in", FILES), selection) == expected


def test_the_output_folder_is_no_input(tmp_path: Path) -> None:
    folder = write(tmp_path / "in", {"a.txt": "", "out/a.txt": ""})
    assert [found.name for found in discover([folder], folder / "out", Selection())] == ["a.txt"]


def test_a_format_for_all(tmp_path: Path) -> None:
    write(tmp_path, {"a.msg": ""})
    [found] = discover([tmp_path / "a.msg"], tmp_path / "out", Selection(format="text"))
    assert found.format is not None
    assert found.format.name == "text"


def test_a_named_file_of_no_format(tmp_path: Path) -> None:
    write(tmp_path, {"a.png": ""})
    with pytest.raises(UnknownFormatError, match=r"a\.png' is not a supported document"):
        discover([tmp_path / "a.png"], tmp_path / "out", Selection())
    [found] = discover([tmp_path / "a.png"], tmp_path / "out", Selection(), takes_others=True)
    assert found.format is None


def test_two_sources_of_one_translation(tmp_path: Path) -> None:
    write(tmp_path, {"one/a.txt": "", "two/a.txt": ""})
    with pytest.raises(click.UsageError, match="would both become"):
        discover([tmp_path / "one", tmp_path / "two"], tmp_path / "out", Selection())


def test_the_same_file_twice_is_one_document(tmp_path: Path) -> None:
    write(tmp_path, {"in/a.txt": ""})
    found = discover([tmp_path / "in", tmp_path / "in" / "a.txt"], tmp_path / "out", Selection())
    assert [each.name for each in found] == ["a.txt"]


def test_a_translation_never_replaces_its_source(tmp_path: Path) -> None:
    write(tmp_path, {"in/a.txt": ""})
    with pytest.raises(click.UsageError, match="its own translation"):
        discover([tmp_path / "in" / "a.txt"], tmp_path / "in", Selection())


def test_bilingual_files_do_not_collide_with_translations(tmp_path: Path) -> None:
    write(tmp_path, {"in/a.md": "", "in/a.md.tsv": ""})
    with pytest.raises(click.UsageError, match=r"would both become .*a\.md\.tsv"):
        discover([tmp_path / "in"], tmp_path / "out", Selection(), beside=".tsv")
    assert len(discover([tmp_path / "in"], tmp_path / "out", Selection(), beside=".xlf")) == 2


def test_ignored_files_do_not_collide(tmp_path: Path) -> None:
    write(tmp_path, {"one/a.png": "", "two/a.png": ""})
    folders = [tmp_path / "one", tmp_path / "two"]
    assert [found.name for found in discover(folders, tmp_path / "out", Selection())] == ["a.png", "a.png"]
    with pytest.raises(click.UsageError, match="would both become"):
        discover(folders, tmp_path / "out", Selection(), takes_others=True)


def test_a_link_to_nothing_has_no_size(tmp_path: Path) -> None:
    write(tmp_path, {"in/a.txt": "abc"})
    (tmp_path / "in" / "b.txt").symlink_to(tmp_path / "nowhere")
    assert [found.size for found in discover([tmp_path / "in"], tmp_path / "out", Selection())] == [3, 0]
