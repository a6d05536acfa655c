"""The command that installs an extra, in a clone and beside a wheel."""

from pathlib import Path

import pytest

from triptych import extras

CPU = " --extra-index-url https://download.pytorch.org/whl/cpu"


@pytest.mark.parametrize(("extra", "index"), [("serve", ""), ("export", CPU), ("train", CPU), ("peft", CPU)])
def test_the_command_fits_the_installation(extra: str, index: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "__file__", str(tmp_path / "protos" / "triptych" / "extras.py"))
    assert extras.install_command(extra) == f'pip install "triptych[{extra}]"{index}'
    (tmp_path / "pyproject.toml").touch()
    assert extras.install_command(extra) == f'pip install -e "{tmp_path}[{extra}]"{index}'
