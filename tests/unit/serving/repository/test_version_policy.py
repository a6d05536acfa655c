"""`model.json`: which versions are served, and what they are called."""

import json
from pathlib import Path
from typing import Any

import pytest

from triptych_serving.errors import BundleError
from triptych_serving.repository.version_policy import DEFAULT, VersionPolicy, read_policy


def write(folder: Path, content: Any) -> None:
    (folder / "model.json").write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")


def faults_of(folder: Path, content: Any) -> tuple[str, ...]:
    write(folder, content)
    with pytest.raises(BundleError) as error:
        read_policy(folder)
    assert str(folder / "model.json") in str(error.value)
    return error.value.faults


@pytest.mark.parametrize(
    ("versions", "policy"),
    [
        ("latest", VersionPolicy(1)),
        ({"latest": 2}, VersionPolicy(2)),
        ("all", VersionPolicy(0)),
        ([3, 1], VersionPolicy(0, frozenset({1, 3}))),
    ],
)
def test_versions_are_chosen_and_labelled(tmp_path: Path, versions: Any, policy: VersionPolicy) -> None:
    assert read_policy(tmp_path) == DEFAULT == VersionPolicy(latest=1)
    write(tmp_path, {"versions": versions})
    assert read_policy(tmp_path) == policy
    write(tmp_path, '\ufeff{"labels": {"stable": 3, "canary": 4, "blue": 4}}')  # with the mark of an editor on Windows
    labelled = read_policy(tmp_path)
    assert [labelled.labels_of(version) for version in (3, 4, 5)] == [("stable",), ("blue", "canary"), ()]


def test_candidates_are_newest_first_and_include_labelled_ones() -> None:
    assert VersionPolicy(1, labels={"stable": 2}).candidates([1, 2, 3]) == [3, 2, 1]
    assert VersionPolicy(0).candidates([1, 2, 3]) == [3, 2, 1]
    assert VersionPolicy(0, frozenset({3, 9}), {"stable": 1}).candidates([1, 2, 3]) == [3, 1]


@pytest.mark.parametrize(
    "value", ["newest", 2, [], [0], [True], ["1"], [1, -1], {"latest": 0}, {"latest": 1, "oldest": 1}, {}, None]
)
def test_malformed_versions_are_rejected(tmp_path: Path, value: Any) -> None:
    [fault] = faults_of(tmp_path, {"versions": value})
    assert fault.startswith(f"versions is {value!r}, expected")


@pytest.mark.parametrize("label", ["", "1", "-x", "a b", "a" * 64, "ä", "a/b"])
def test_labels_are_names(tmp_path: Path, label: str) -> None:
    [fault] = faults_of(tmp_path, {"labels": {label: 1}})
    assert f"labels: {label!r} is not a label" in fault


def test_all_faults_are_listed_at_once(tmp_path: Path) -> None:
    faults = faults_of(tmp_path, {"versions": "newest", "labels": {"7": 1, "stable": 0, "canary": "4"}, "extra": 1})
    assert [fault.split(" is ")[0] for fault in faults] == [
        "'extra'",
        "versions",
        "labels: '7'",
        "labels.stable",
        "labels.canary",
    ]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("{", "not valid JSON"),
        ("[]", "the file is not an object"),
        ("[" * 60_000, ""),  # the reason depends on the version of Python
        ('"' + "a" * 70_000, "more than 65,536"),
        ('{"versions": "all", "versions": "latest"}', "cannot be read: 'versions' occurs twice in one object"),
        ('{"labels": {"stable": 1, "stable": 2}}', "cannot be read: 'stable' occurs twice in one object"),
    ],
)
def test_a_file_that_is_not_an_object_is_rejected(tmp_path: Path, content: str, problem: str) -> None:
    assert any(problem in fault for fault in faults_of(tmp_path, content))
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "model.json").symlink_to(tmp_path / "model.json")
    with pytest.raises(BundleError, match="not a plain file"):
        read_policy(tmp_path / "model")
