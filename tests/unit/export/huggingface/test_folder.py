"""Local folders and models of the hub, which is faked."""

from fnmatch import fnmatch
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from triptych_export.errors import SourceError
from triptych_export.huggingface import folder
from triptych_export.huggingface.folder import open_folder

NAME = "someone/something"
COMMITS = {None: "c0ffee", "v2": "beef"}
NO_NETWORK = ConnectionError("no network")


class Hub:
    """Fake hub with one model, in `path`."""

    def __init__(self, path: Path, files: list[str], error: Exception | None = None, fetched: bool = False) -> None:
        self.path, self.files, self.error, self.fetched = path, files, error, fetched
        self.revision: str | None = None
        self.patterns: list[str] = []

    def model_info(self, name: str, revision: str | None) -> SimpleNamespace:
        if self.error:
            raise self.error
        assert name == NAME
        return SimpleNamespace(sha=COMMITS[revision], siblings=[SimpleNamespace(rfilename=file) for file in self.files])

    def download(self, name: str, revision: str | None, allow_patterns: list[str], local_files_only: bool = False) -> str:
        if local_files_only and not self.fetched:
            raise OSError("not in the cache")
        self.patterns, self.revision = allow_patterns, revision
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
    assert any(fnmatch("2_Dense/pytorch_model.bin", pattern) for pattern in hub.patterns)
    assert {"*.safetensors", "*.jinja"} <= set(hub.patterns)


def test_files_of_gguf_are_named_one_by_one(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(Hub(model, ["config.json", "small-Q4_0.gguf", "small-Q8_0.gguf"]), monkeypatch, model.parent)
    with pytest.raises(SourceError, match=f"^{NAME}: holds GGUF files, .*: hf download {NAME} small-Q4_0.gguf --local-dir .$"):
        open_folder(NAME)
    (model / "small.gguf").touch()
    (model / "config.json").unlink()
    with pytest.raises(SourceError, match=r"config\.json; to read a GGUF file, name it instead of the folder: small\.gguf$"):
        _ = open_folder(str(model)).config


def test_without_a_network_the_cache_is_used(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(Hub(model, [], NO_NETWORK, fetched=True), monkeypatch, model.parent)
    found = open_folder(NAME)
    assert found.path == model
    assert found.origin["checkpoint_source"] == "cached copy, since the hub did not answer: no network"
    assert found.origin["checkpoint_revision"] == f"{NAME}@{model.name}"


def test_a_refusal_of_the_hub_is_an_error_even_with_a_cached_copy(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(Hub(model, [], PermissionError("401 access was revoked"), fetched=True), monkeypatch, model.parent)
    with pytest.raises(SourceError, match="not available from the Hugging Face hub: 401 access was revoked"):
        open_folder(NAME)


@pytest.mark.parametrize("revision", ["", "v2"])
def test_a_download_is_pinned_to_a_recorded_commit(model: Path, monkeypatch: pytest.MonkeyPatch, revision: str) -> None:
    hub = Hub(model, ["model.safetensors"])
    use(hub, monkeypatch, model.parent)
    assert open_folder(NAME, revision).origin == {"checkpoint_revision": f"{NAME}@{COMMITS[revision or None]}"}
    assert hub.revision == COMMITS[revision or None]
    with pytest.raises(SourceError, match="revision: 'v2' applies to models on the Hugging Face hub"):
        open_folder(str(model), "v2")


def test_without_network_and_cache_the_hubs_error_is_reported(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(Hub(model, [], NO_NETWORK), monkeypatch, model.parent)
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
