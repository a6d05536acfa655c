"""`triptych models`, for a repository."""

import json
from pathlib import Path

import pytest

from triptych_cli.admin.models import ModelRow

from ....fixtures.toy import MODELS, copy_bundle, tamper
from ..conftest import Run


def test_a_repository_as_table_and_json(run: Run) -> None:
    assert [line.split() for line in run("models", "--models", MODELS).success.splitlines()] == [
        ["name", "version", "task", "details", "precisions", "state"],
        ["toy", "1", "translation", "en", "to", "de,", "64", "tokens", "fp32,", "int8", "on", "disk"],
    ]
    [row] = json.loads(run("models", "--models", MODELS, "--json").out)
    assert row == {
        "name": "toy",
        "version": "1",
        "called": "",
        "default": True,
        "task": "translation",
        "languages": "en to de",
        "labels": 0,
        "limits": "64 tokens",
        "precisions": "fp32, int8",
        "devices": "",
        "state": "on disk",
    }


def test_the_table_fits_into_80_columns(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    lines = run("models").success.splitlines()
    assert {line.split()[0] for line in lines} >= {"name", "bert-en", "en-de", "gpt-en", "vit-cifar10"}
    assert max(map(len, lines)) <= 80


def test_versions_their_labels_and_damage(run: Run, tmp_path: Path) -> None:
    for version in (1, 2, 10):
        copy_bundle(tmp_path, version=version)
    (tmp_path / "toy" / "model.json").write_text('{"labels": {"stable": 2, "canary": 10}}')
    lines = [line.split()[:4] for line in run("models", "--models", tmp_path).out.splitlines()]
    assert lines[1:] == [
        ["toy", "1", "translation", "en"],
        ["toy", "2", "stable,", "default"],
        ["toy", "10", "canary", "translation"],
    ]
    tamper(tmp_path / "toy" / "1" / "tokenizer.json")
    first, second, _ = (row["state"] for row in json.loads(run("models", "--models", tmp_path, "--json").out))
    assert first.startswith("damaged: ")
    assert "tokenizer.json does not have its recorded SHA-256" in first
    assert second == "on disk"
    (tmp_path / "toy" / "model.json").write_text('{"labels": []}')
    assert "labels is not an object" in run("models", "--models", tmp_path).out


def test_the_device_stands_before_the_message_of_a_version() -> None:
    row = ModelRow("toy", "1", "", True, "translation", "", 0, "", "int8", "cpu", "ready: toy/1: too new")
    assert row.cells({"toy": 1})[-1] == "ready on cpu: toy/1: too new"


@pytest.mark.parametrize("name", ["missing", "empty"])
def test_a_repository_without_models_is_named(run: Run, tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    assert run("models", "--models", tmp_path / name).error.startswith(f"{tmp_path / name}: no ")
