"""Comparison with buf: the protos follow its rules, and protos/breaking.py finds the same changes."""

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import google.rpc
import pytest

from ..fixtures.contracts import ADDITIONS, BREAKS, CONTRACT, write

pytestmark = pytest.mark.full

PROTOS = Path(__file__).resolve().parents[2] / "protos"

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def run(buf: str, tmp_path: Path) -> Run:
    return lambda *arguments: subprocess.run([buf, *arguments], cwd=tmp_path, capture_output=True, text=True, check=False)


def test_the_protos_follow_the_standard_rules(run: Run, tmp_path: Path) -> None:
    rules = "version: v2\nmodules: [{path: protos}, {path: imports}]\nlint: {use: [STANDARD]}\n"
    (tmp_path / "buf.yaml").write_text(rules, encoding="utf-8")
    shutil.copytree(PROTOS / "triptych/v1", tmp_path / "protos/triptych/v1")
    status = next(path / "status.proto" for path in map(Path, google.rpc.__path__) if (path / "status.proto").exists())
    (tmp_path / "imports/google/rpc").mkdir(parents=True)
    shutil.copy(status, tmp_path / "imports/google/rpc")
    result = run("lint", "protos")
    assert result.returncode == 0, result.stdout + result.stderr


def test_both_checks_find_the_same_breaking_changes(run: Run, tmp_path: Path) -> None:
    rules = "version: v2\nmodules: [{path: protos}]\nbreaking: {use: [FILE]}\n"
    (tmp_path / "buf.yaml").write_text(rules, encoding="utf-8")
    write(CONTRACT, tmp_path / "protos")
    assert run("build", "-o", "old.binpb").returncode == 0
    found = {}
    for change in (*ADDITIONS, *BREAKS):
        write(change.apply(), tmp_path / "protos")
        result = run("breaking", "--against", "old.binpb", "--error-format", "json")
        found[change.name] = sorted(json.loads(line)["type"] for line in result.stdout.splitlines())
    assert found == {change.name: sorted(change.rules) for change in (*ADDITIONS, *BREAKS)}
