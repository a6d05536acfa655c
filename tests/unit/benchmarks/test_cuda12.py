"""Selection of cuBLAS for CTranslate2."""

from pathlib import Path

from candidates.ctranslate2_backend import WANTED, cuda_environment


def make(folder: Path, suffix: str) -> Path:
    folder.mkdir()
    for name in WANTED:
        (folder / name.replace(".so.12", suffix)).touch()
    return folder


def test_cublas_12_is_preferred(tmp_path: Path) -> None:
    folders = [make(tmp_path / "twelve", ".so.12"), make(tmp_path / "thirteen", ".so.13")]
    variables, words = cuda_environment(tmp_path / "work", folders)
    assert variables["LD_LIBRARY_PATH"].split(":")[:2] == list(map(str, folders))
    assert words == "cuBLAS 12"


def test_cublas_13_is_linked_under_the_name_of_12(tmp_path: Path) -> None:
    folder = make(tmp_path / "thirteen", ".so.13")
    for _ in range(2):  # a second call finds the links
        variables, words = cuda_environment(tmp_path / "work", [folder])
    first = Path(variables["LD_LIBRARY_PATH"].split(":")[0])
    assert {link.name: link.resolve() for link in first.iterdir()} == {
        name: folder / name.replace(".so.12", ".so.13") for name in WANTED
    }
    assert words == "cuBLAS 13 under the name of 12"


def test_missing_cublas_is_reported(tmp_path: Path) -> None:
    assert cuda_environment(tmp_path, [])[1] == "no cuBLAS 12 or 13 in any folder"
