"""Whose cuBLAS CTranslate2 gets."""

from pathlib import Path

from gpu_cuda12 import WANTED, environment


def make(folder: Path, suffix: str) -> Path:
    folder.mkdir()
    for name in WANTED:
        (folder / name.replace(".so.12", suffix)).touch()
    return folder


def test_its_own_where_it_is(tmp_path: Path) -> None:
    folders = [make(tmp_path / "twelve", ".so.12"), make(tmp_path / "thirteen", ".so.13")]
    variables, words = environment(tmp_path / "work", folders)
    assert variables["LD_LIBRARY_PATH"].split(":")[:2] == list(map(str, folders))
    assert words == "cuBLAS 12"


def test_the_next_one_under_the_old_name(tmp_path: Path) -> None:
    folder = make(tmp_path / "thirteen", ".so.13")
    for _ in range(2):  # a second call finds the links
        variables, words = environment(tmp_path / "work", [folder])
    first = Path(variables["LD_LIBRARY_PATH"].split(":")[0])
    assert {link.name: link.resolve() for link in first.iterdir()} == {
        name: folder / name.replace(".so.12", ".so.13") for name in WANTED
    }
    assert words == "cuBLAS 13 under the name of 12"


def test_none_where_there_is_none(tmp_path: Path) -> None:
    assert environment(tmp_path, [])[1] == "no cuBLAS 12 or 13 in any folder"
