"""A serving process does without torch and onnx."""

import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

from ..fixtures.toy import MODELS, SOURCE, TARGET
from .processes import PATIENCE_SECONDS, clean_environment

ENCODERS = Path(__file__).parents[1] / "fixtures" / "encoder_models"
PROGRAM = """
import sys
import triptych_cli.main
import triptych_serving.server
sys.argv = ["triptych", *sys.argv[1:]]
try:
    triptych_cli.main.main()
except SystemExit as end:
    assert not end.code, end.code
loaded = {"torch", "onnx", "triptych_training", "triptych_export"} & set(sys.modules)
assert not loaded, loaded
"""


@pytest.fixture
def photo(tmp_path: Path) -> Path:
    """All red."""
    path = tmp_path / "red.png"
    Image.new("RGB", (40, 30), (220, 40, 40)).save(path)
    return path


def answer(*arguments: str | Path) -> str:
    """What a command writes in a process of its own."""
    command = [sys.executable, "-c", PROGRAM, *map(str, arguments)]
    environment = clean_environment()
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_SECONDS, env=environment)
    assert (result.returncode, result.stderr) == (0, "")
    return result.stdout


def test_translate() -> None:
    assert answer("translate", "--models", MODELS, SOURCE) == f"{TARGET}\n"


def test_fill() -> None:
    first = answer("fill", "--models", ENCODERS, "--top-k", "1", "the dog sees the house [MASK]")
    assert first.split()[-6:-1] == ["the", "dog", "sees", "the", "house"]


def test_classify(photo: Path) -> None:
    assert answer("classify", "--models", ENCODERS, "--top-k", "1", photo).split()[-1] == "red"


def test_embed() -> None:
    assert answer("embed", "--models", ENCODERS, "the dog").startswith('{"text": "the dog", "token_count": 4, "values": [')
