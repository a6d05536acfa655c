import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROTOS = Path(__file__).resolve().parents[3] / "protos"


def generate(protos: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(protos / "generate.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return Path(shutil.copytree(PROTOS, tmp_path / "protos", ignore=shutil.ignore_patterns("__pycache__")))


def test_stubs_are_what_the_protos_give() -> None:
    check = generate(PROTOS, "--check")
    assert check.returncode == 0, check.stderr


@pytest.mark.full
def test_a_changed_proto_and_stubs_without_one_are_noticed_and_mended(copy: Path) -> None:
    proto = copy / "triptych/v1/common.proto"
    proto.write_text(proto.read_text().replace("queue_seconds", "waiting_seconds"))
    stale = copy / "triptych/v1/gone_pb2.py"
    stale.touch()

    check = generate(copy, "--check")
    assert check.returncode == 1
    assert "common_pb2.py, common_pb2.pyi" in check.stderr

    assert "gone_pb2.py" in check.stderr

    assert generate(copy).returncode == 0
    assert not stale.exists()
    assert "waiting_seconds" in (copy / "triptych/v1/common_pb2.pyi").read_text()
