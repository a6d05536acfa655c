"""A serving process does without torch and onnx."""

import subprocess
import sys

from ..fixtures.toy import MODELS, SOURCE, TARGET
from .processes import PATIENCE_SECONDS, clean_environment

PROGRAM = """
import sys
import triptych_cli.main
import triptych_serving.server
sys.argv = ["triptych", "translate", "--models", sys.argv[1], sys.argv[2]]
try:
    triptych_cli.main.main()
except SystemExit as end:
    assert not end.code, end.code
loaded = {"torch", "onnx", "triptych_training", "triptych_export"} & set(sys.modules)
assert not loaded, loaded
"""


def test_nothing_of_training_and_export_is_loaded() -> None:
    command = [sys.executable, "-c", PROGRAM, str(MODELS), SOURCE]
    result = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=PATIENCE_SECONDS, env=clean_environment()
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, f"{TARGET}\n", "")
