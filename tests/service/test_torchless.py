"""Serving processes import neither torch nor onnx."""

import json
import subprocess
import sys
from pathlib import Path

from PIL import Image

from ..fixtures.toy import ENCODER_MODELS, MODELS, SOURCE, TARGET
from .support.processes import PATIENCE_SECONDS, clean_environment

PROGRAM = """
import json, sys
import triptych_cli.main
import triptych_serving.server
for arguments in json.loads(sys.argv[1]):
    sys.argv = ["triptych", *arguments]
    try:
        triptych_cli.main.main()
    except SystemExit as end:
        assert not end.code, end.code
    print("----", flush=True)
loaded = {"torch", "onnx", "triptych_training", "triptych_export"} & set(sys.modules)
assert not loaded, loaded
"""


def test_commands_import_neither_torch_nor_onnx(tmp_path: Path) -> None:
    photo = tmp_path / "red.png"
    Image.new("RGB", (40, 30), (220, 40, 40)).save(photo)
    commands = [
        ["translate", "--models", str(MODELS), SOURCE],
        ["fill", "--models", str(ENCODER_MODELS), "--top-k", "1", "the dog sees the house [MASK]"],
        ["classify", "--models", str(ENCODER_MODELS), "--top-k", "1", str(photo)],
        ["embed", "the dog"],  # by the embedded model
    ]
    command = [sys.executable, "-c", PROGRAM, json.dumps(commands)]
    environment = clean_environment()
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_SECONDS, env=environment)
    assert (result.returncode, result.stderr) == (0, "")
    translated, filled, classified, embedded, rest = result.stdout.split("----\n")
    assert (translated, rest) == (f"{TARGET}\n", "")
    assert filled.split()[-6:-1] == ["the", "dog", "sees", "the", "house"]
    assert classified.split()[-1] == "red"
    assert embedded.startswith('{"text": "the dog", "token_count": 4, "values": [')
