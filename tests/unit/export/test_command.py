"""`triptych export` on the command line."""

import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from triptych_cli.main import cli
from triptych_export.families import translation

from ...fixtures.toy import HERE


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["export", *arguments])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("none",), "none: not a folder, nor a model's name on the Hugging Face hub like Helsinki-NLP/opus-mt-en-de"),
        (("models/none.onnx",), "models/none.onnx: there is no such file"),
        (("none.gguf",), "none.gguf: there is no such file"),
        ((str(HERE / "checkpoint"), "--valid", "none.tsv"), "none.tsv: cannot be read: No such file or directory"),
        ((str(HERE / "checkpoint"), "--shortlist", "none.tsv"), "none.tsv: cannot be read: No such file or directory"),
    ],
    ids=["checkpoint", "file", "gguf", "sentences", "pairs"],
)
def test_what_cannot_be_exported_is_one_line_and_a_failure(tmp_path: Path, arguments: tuple[str, ...], message: str) -> None:
    result = run(*arguments, "--out", str(tmp_path / "models"))
    assert result.exit_code == 1
    assert result.stdout == ""
    assert result.stderr == f"Error: {message}\n"
    assert not (tmp_path / "models").exists()


def interrupt(*_: object) -> None:
    signal.raise_signal(signal.SIGTERM)


def interrupt_torch(*_: object) -> None:
    """Receive the signal where exceptions are replaced, as in torch.onnx.export."""
    try:
        interrupt()
    except BaseException as error:
        raise RuntimeError("failed to export the model") from error


@pytest.mark.parametrize("write", [interrupt, interrupt_torch])
def test_sigterm_leaves_no_scratch_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Callable[..., None]) -> None:
    remove = shutil.rmtree
    monkeypatch.setattr(translation, "write_translation", write)
    # timeout(1) signals its child, then its group.
    monkeypatch.setattr(shutil, "rmtree", lambda *arguments, **options: (interrupt(), remove(*arguments, **options)))
    before = signal.getsignal(signal.SIGTERM)
    (tmp_path / "toy").mkdir()
    result = run(str(HERE / "checkpoint"), "--out", str(tmp_path))
    assert (result.exit_code, list(tmp_path.iterdir())) == (143, [tmp_path / "toy"])
    assert signal.getsignal(signal.SIGTERM) is before
