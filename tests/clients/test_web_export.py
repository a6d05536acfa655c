"""`triptych export --for web` in Node, with onnxruntime-web and @huggingface/tokenizers, against models in this process."""

import json
import shutil
import subprocess
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from playwright.sync_api import expect, sync_playwright

from triptych_embedded.request import embedded_repository
from triptych_export.web_page import PACKAGES, export_web

from ..service.support.processes import PATIENCE_SECONDS
from .conftest import NODE, npm

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")

pytestmark = pytest.mark.full


def test_embedded_models_run_on_onnxruntime_web(tmp_path: Path) -> None:
    npm(tmp_path, "install", "--no-save", *(f"{name}@{version}" for name, version in PACKAGES.items()))
    shutil.copy(NODE / "web_model.mjs", tmp_path)

    def run(name: str, value: Any) -> Any:
        if not (tmp_path / name).exists():
            export_web(embedded_repository() / name / "1", tmp_path / name)
        command = ["node", "web_model.mjs", str(tmp_path / name), json.dumps([value])]
        result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)
        assert result.returncode == 0, result.stderr
        return json.loads(result.stdout)[0]

    assert run("en-de", " I have a cat. Where is the station?\n") == " Ich habe eine Katze. Wo ist der Bahnhof?\n"
    assert run("en-de", "« Hello » ! </s>") == "« Hallo » ! </s>"  # spaces stay, and special tokens are text
    assert run("en-de", "I met Dr. Smith.").count(".") == 2  # one sentence
    [ranked] = run("bert-en", "The war ended in the [MASK] century.")
    assert (ranked[0]["label"], round(ranked[0]["score"], 2)) == ("19th", 0.38)
    assert run("bert-en", "The [SEP] and [CLS] [PAD] [UNK] has [MASK]")[0][0]["score"] < 0.6  # 0.68 with these as tokens
    ranked = run("vit-cifar10", [index % 256 for index in range(32 * 32 * 3)])
    assert (ranked[0]["label"], round(ranked[0]["score"], 2)) == ("cat", 0.82)


class QuietHandler(SimpleHTTPRequestHandler):
    """Serves files without a log."""

    def log_message(self, format: str, *args: Any) -> None:
        """Write nothing."""


@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")
def test_the_page_shows_results_of_its_input_alone(tmp_path: Path) -> None:
    npm(tmp_path, "install", "--no-save", *(f"{name}@{version}" for name, version in PACKAGES.items()))
    for name in ("bert-en", "vit-cifar10"):
        export_web(embedded_repository() / name / "1", tmp_path / name)
        (tmp_path / name / "node_modules").symlink_to(tmp_path / "node_modules")
    server = ThreadingHTTPServer(("localhost", 0), partial(QuietHandler, directory=str(tmp_path)))
    Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://localhost:{server.server_port}"
    try:
        with (
            sync_playwright() as playwright,
            playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"]) as browser,
        ):
            page = browser.new_page()
            page.goto(f"{url}/bert-en/")
            expect(page.locator("#result")).to_contain_text("20th", timeout=1000 * PATIENCE_SECONDS)
            page.fill("#text", "Without a mask")
            expect(page.locator("#status")).to_have_text("write [MASK] in place of a word")
            expect(page.locator("#result")).to_be_empty()
            page.goto(f"{url}/vit-cifar10/")
            expect(page.locator("#status")).to_have_text("Ready", timeout=1000 * PATIENCE_SECONDS)
            page.locator("#image").dispatch_event("change")  # the choice was cancelled
            expect(page.locator("#status")).to_have_text("Ready")
            page.route("**/node_modules/**", lambda route: route.abort())
            page.goto(f"{url}/bert-en/")
            expect(page.locator("#status")).to_contain_text("Run npm install in the folder of this page.")
    finally:
        server.shutdown()
        server.server_close()
