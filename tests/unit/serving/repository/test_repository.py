"""Which folders are models."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from triptych_serving.errors import RepositoryError
from triptych_serving.repository.repository import list_models, newest_versions


def add(repository: Path, *folders: str) -> None:
    for folder in folders:
        (repository / folder).mkdir(parents=True)


def test_versions_are_numbers_and_sorted_as_such(repository: Path) -> None:
    add(repository, "b/2", "b/10", "a/1", "a/0", "a/-1", "a/v2", "a/.export-3", "a/²", "a/١", "empty", ".git/1")
    (repository / "a" / "7").touch()
    (repository / "README.md").touch()
    assert {name: folder.numbers for name, folder in list_models(repository).items()} == {"a": [1], "b": [2, 10]}
    assert [(entry.name, entry.version) for entry in newest_versions(repository)] == [("a", 1), ("b", 10)]


def test_a_number_is_one_version_however_it_is_written(repository: Path) -> None:
    add(repository, "a/1", "a/01", "a/001", "a/02")
    assert [entry.folder.name for entry in list_models(repository)["a"].versions] == ["1", "02"]


def test_a_name_that_is_not_utf_8_is_left_out(repository: Path, caplog: pytest.LogCaptureFixture) -> None:
    add(repository, "a/1", "b\udcff/1")
    assert list(list_models(repository)) == ["a"]
    assert caplog.messages == [f"{repository / 'b'}\\udcff cannot be read and is left out: its name is not UTF-8"]


def test_a_label_of_a_missing_version_is_reported_once(repository: Path, caplog: pytest.LogCaptureFixture) -> None:
    add(repository, "a/1")
    policy = repository / "a" / "model.json"
    policy.write_text('{"labels": {"stable": 1, "canary": 2}}')
    assert [list_models(repository)["a"].fault for _ in range(2)] == ["", ""]
    assert caplog.messages == [f"{policy}: label 'canary' is of version 2, which does not exist"]


@pytest.mark.parametrize(
    ("root", "problem"),
    [
        ("missing", "no such model repository"),
        ("1/bundle.json", "a file; name a folder of <model>/<version>/bundle.json, the version a positive integer"),
        ("1", "a version of one model; name the folder of all models, {above}"),
        (".", "one model; name the folder of all models, {above}"),
    ],
)
def test_what_is_no_repository_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, root: str, problem: str) -> None:
    add(tmp_path, "models/m/1")
    (tmp_path / "models/m/1/bundle.json").touch()
    monkeypatch.chdir(tmp_path / "models/m")
    with pytest.raises(RepositoryError) as error:
        newest_versions(Path(root))
    assert str(error.value) == f"{root}: {problem.format(above=tmp_path / 'models')}"


@pytest.mark.parametrize(
    ("graph", "root", "problem"),
    [
        ("model.onnx", "model.onnx", "an ONNX file alone cannot be served"),
        ("model.onnx", ".", "an ONNX file alone cannot be served"),
        ("m/model.onnx", ".", "an ONNX file alone cannot be served"),
        ("m/named/model.onnx", "m", "no models here; expected <model>/<version>/bundle.json"),
    ],
)
def test_graphs_without_a_bundle_are_explained(tmp_path: Path, graph: str, root: str, problem: str) -> None:
    (tmp_path / graph).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / graph).touch()
    if "named" in graph:
        (tmp_path / graph).with_name("bundle.json").touch()
    with pytest.raises(RepositoryError, match=problem):
        newest_versions(tmp_path / root)


def test_an_unreadable_folder_is_left_out(
    repository: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    add(repository, "a/1", "lost+found/1")
    look, unreadable = Path.iterdir, repository / "lost+found"

    def refuse(path: Path) -> Iterator[Path]:
        if path == unreadable:
            raise PermissionError(13, "Permission denied", str(path))
        return look(path)

    monkeypatch.setattr(Path, "iterdir", refuse)
    for _ in range(3):
        assert list(list_models(repository)) == ["a"]
    assert caplog.messages == [f"{unreadable} cannot be read and is left out: Permission denied"]
    unreadable = repository
    with pytest.raises(RepositoryError, match=f"{repository}: cannot be read: Permission denied") as failed:
        newest_versions(repository)
    assert failed.value.where == repository  # a path: callers see its name alone
