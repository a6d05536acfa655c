"""The Node client against a real server."""

import base64
import json
import subprocess
from pathlib import Path
from typing import Any

import google.rpc
import pytest

from ..fixtures.encoders import png, write_every_bundle
from ..fixtures.toy import SOURCE, SOURCES, TARGET, copy_bundle
from ..service.support.processes import PATIENCE_SECONDS, ServerProcess

pytestmark = pytest.mark.full

PROTOS = Path(__file__).resolve().parents[2] / "protos"
GOOGLE = next(Path(path).parents[1] for path in google.rpc.__path__ if (Path(path) / "status.proto").exists())


@pytest.fixture(scope="module")
def answers(node_client: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Results of one session with every kind of call."""
    repository = tmp_path_factory.mktemp("models")
    write_every_bundle(repository)
    copy_bundle(repository)
    asked = {
        "source": SOURCE,
        "many": SOURCES * 20,
        "masked": "one two [MASK]",
        "image": base64.b64encode(png((0, 200, 0))).decode(),
    }
    with ServerProcess(repository) as server:
        command = ["node", "session.js", server.address, str(PROTOS), str(GOOGLE)]
        result = subprocess.run(
            command,
            cwd=node_client,
            input=json.dumps(asked),
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )
    assert result.returncode == 0, result.stderr
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def test_list_models(answers: dict[str, Any]) -> None:
    assert {"toy 1 MODEL_STATE_READY", "fill-mask 1 MODEL_STATE_READY"} <= set(answers["models"])


def test_translate(answers: dict[str, Any]) -> None:
    assert answers["translate"] == {
        "text": TARGET,
        "finish": "FINISH_REASON_STOP",
        "hypotheses": 2,
        "scored": True,
        "model": "toy",
        "timed": True,
    }


def test_stream(answers: dict[str, Any]) -> None:
    assert answers["stream"] == {"pieces": TARGET, "result": TARGET, "model": "toy"}


def test_fill_masks(answers: dict[str, Any]) -> None:
    assert answers["fillMask"] == "one two three"


def test_classify_images(answers: dict[str, Any]) -> None:
    assert answers["classifyImage"] == "green"
    good, bad = (answers["classifyImages"][image_id] for image_id in ("1", "2"))
    assert good == "green"
    assert "not an image (it begins with the bytes" in bad


def test_errors(answers: dict[str, Any]) -> None:
    assert answers["badText"] == {
        "code": "INVALID_ARGUMENT",
        "message": "contents[1]: the text is empty",
        "reason": "INVALID_INPUT",
        "fields": ["contents[1]"],
    }
    assert answers["noModel"] == {"code": "NOT_FOUND", "reason": "NOT_FOUND"}


def test_deadlines_and_cancellation(answers: dict[str, Any]) -> None:
    assert (answers["deadline"], answers["cancel"]) == ("DEADLINE_EXCEEDED", "CANCELLED")
