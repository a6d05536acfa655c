"""`triptych export --for web` in Node, with onnxruntime-web and @huggingface/tokenizers, against models in this process."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from triptych_embedded.request import embedded_repository
from triptych_export.web_page import PACKAGES, export_web

from ..service.support.processes import PATIENCE_SECONDS
from .conftest import NODE, npm

pytestmark = pytest.mark.full


def test_embedded_models_run_on_onnxruntime_web(tmp_path: Path) -> None:
    npm(tmp_path, "install", "--no-save", *(f"{name}@{version}" for name, version in PACKAGES.items()))
    shutil.copy(NODE / "web_model.mjs", tmp_path)

    def run(name: str, value: Any) -> Any:
        export_web(embedded_repository() / name / "1", tmp_path / name)
        command = ["node", "web_model.mjs", str(tmp_path / name), json.dumps([value])]
        result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)
        assert result.returncode == 0, result.stderr
        return json.loads(result.stdout)[0]

    assert run("en-de", "I have a cat. Where is the station?\n") == "Ich habe eine Katze. Wo ist der Bahnhof?\n"
    [ranked] = run("bert-en", "The war ended in the [MASK] century.")
    assert (ranked[0]["label"], round(ranked[0]["score"], 2)) == ("20th", 0.26)
    ranked = run("vit-cifar10", [index % 256 for index in range(32 * 32 * 3)])
    assert (ranked[0]["label"], round(ranked[0]["score"], 2)) == ("cat", 0.82)
