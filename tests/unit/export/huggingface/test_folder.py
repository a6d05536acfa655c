"""Local folders and models of the hub, which is faked."""

from pathlib import Path
from typing import Any

import pytest

from triptych_export.errors import SourceError
from triptych_export.huggingface import folder
from triptych_export.huggingface.folder import open_folder

NAME = "someone/something"


class Hub:
    """Fake hub with one model, in `path`."""

    def __init__(self, path: Path, files: list[str], reachable: bool = True, fetched: bool = False) -> None:
        self.path, self.files, self.reachable, self.fetched = path, files, reachable, fetched
        self.patterns: list[str] = []

    def list_repo_files(self, name: str) -> list[str]:
        if not self.reachable:
            raise OSError("no network")
        assert name == NAME
        return self.files

    def download(self, name: str, allow_patterns: list[str], local_files_only: bool = False) -> str:
        if local_files_only and not self.fetched:
            raise OSError("not in the cache")
        self.patterns = allow_patterns
        return str(self.path)


def use(hub: Hub, monkeypatch: pytest.MonkeyPatch, where: Path) -> None:
    monkeypatch.setattr(folder, "HfApi", lambda: hub)
    monkeypatch.setattr(folder, "snapshot_download", hub.download)
    monkeypatch.chdir(where)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "config.json").write_text('{"model_type": "bert"}')
    return tmp_path / "cache"


@pytest.mark.parametrize(
    ("files", "pickles"),
    [
        (["config.json", "model.safetensors", "pytorch_model.bin"], False),
        (["config.json", "pytorch_model.bin"], True),
        (["config.json", "pytorch_model.bin", "onnx/model.safetensors"], True),
    ],
)
def test_a_hub_model_is_downloaded_in_one_format(
    model: Path, monkeypatch: pytest.MonkeyPatch, files: list[str], pickles: bool
) -> None:
    hub = Hub(model, files)
    use(hub, monkeypatch, model.parent)
    assert open_folder(NAME).model_type == "bert"
    assert ("pytorch_model*.bin" in hub.patterns) is pickles
    assert "*.safetensors" in hub.patterns


def test_without_a_network_the_cache_is_used(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(Hub(model, [], reachable=False, fetched=True), monkeypatch, model.parent)
    assert open_folder(NAME).path == model


def test_without_network_and_cache_the_hubs_error_is_reported(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(Hub(model, [], reachable=False), monkeypatch, model.parent)
    with pytest.raises(SourceError, match=f"{NAME}: not a folder, and not available from the Hugging Face hub: no network"):
        open_folder(NAME)


def test_a_local_folder_takes_precedence_over_the_hub(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def ask(*arguments: Any, **options: Any) -> str:
        raise AssertionError("the hub was asked")

    use(Hub(model, []), monkeypatch, model.parent)
    monkeypatch.setattr(folder, "snapshot_download", ask)
    (model.parent / "someone" / "something").mkdir(parents=True)
    assert open_folder(NAME).path == Path(NAME)
    with pytest.raises(SourceError, match="someone/else: not a folder, nor a model's name"):
        open_folder("someone/else")  # its first part is a local folder: a mistyped path
