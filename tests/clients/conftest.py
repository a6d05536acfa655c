"""Node packages and buf, installed once per session."""

import shutil
import subprocess
from pathlib import Path

import pytest

NODE = Path(__file__).parent / "node"
BUF = "@bufbuild/buf@1.75.0"
INSTALL_SECONDS = 300.0


def npm(folder: Path, *arguments: str) -> None:
    """Run npm, or skip the test with the reason of the failure."""
    program = shutil.which("npm")
    if program is None or shutil.which("node") is None:
        pytest.skip("node and npm are not installed")
    command = [program, *arguments, "--ignore-scripts", "--no-audit", "--no-fund"]
    try:
        result = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        pytest.skip(f"{' '.join(arguments)} took more than {INSTALL_SECONDS:g} s: the registry cannot be reached")
    assert "EUSAGE" not in result.stderr, result.stderr  # the lock file does not fit the package
    if result.returncode:
        pytest.skip(f"npm {' '.join(arguments)} failed: {' '.join(result.stderr.split())[:300]}")


@pytest.fixture(scope="session")
def node_client(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the Node client with the packages of its lock file."""
    folder = tmp_path_factory.mktemp("node")
    for path in NODE.iterdir():
        if path.is_file():
            shutil.copy(path, folder)
    npm(folder, "ci")
    return folder


@pytest.fixture(scope="session")
def buf(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Path of the installed program, or of npm's."""
    if found := shutil.which("buf"):
        return found
    folder = tmp_path_factory.mktemp("buf")
    npm(folder, "install", "--no-save", BUF)
    return str(folder / "node_modules/.bin/buf")
