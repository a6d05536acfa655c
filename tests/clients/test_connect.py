"""@connectrpc/connect-web, which browsers use, against the HTTP gateway of a real server."""

import json
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from grpc_tools import protoc

from triptych_client import Client
from triptych_embedded.request import embedded_repository
from triptych_serving.gateway.options import GatewayOptions

from ..service.support.in_process import options_of, serving
from ..service.support.processes import PATIENCE_SECONDS
from .conftest import NODE, npm

PROTOS = Path(__file__).parents[2] / "protos"
PACKAGES = ("@connectrpc/connect@2.2.0", "@connectrpc/connect-web@2.2.0", "@bufbuild/protobuf@2.17.0")

pytestmark = pytest.mark.full


def test_the_web_client_works_unchanged(tmp_path: Path) -> None:
    npm(tmp_path, "install", "--no-save", *PACKAGES)
    shutil.copy(NODE / "connect.mjs", tmp_path)
    write_descriptors(tmp_path / "descriptors")
    options = replace(options_of(embedded_repository()), gateway=GatewayOptions("127.0.0.1", 0))
    with serving(options) as server, Client(f"127.0.0.1:{server.port}") as client:
        command = ["node", "connect.mjs", f"http://127.0.0.1:{server.http_port}", "descriptors"]
        result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)
        expected = client.translate("I have a cat.", target_language="de").text
    assert result.returncode == 0, result.stderr
    errors = {"invalid": "InvalidArgument", "unknown": "NotFound", "late": "DeadlineExceeded", "aborted": "Canceled"}
    assert json.loads(result.stdout) == [{"translation": expected, "pieces": expected, **errors}] * 2


def write_descriptors(path: Path) -> None:
    """Write the descriptors of the translation service and of all that it imports."""
    arguments = (f"-I{PROTOS}", f"--descriptor_set_out={path}", "--include_imports", "triptych/v1/translation.proto")
    assert protoc.main(["protoc", *arguments]) == 0
