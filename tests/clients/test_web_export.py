"""`triptych export --for web` in Node, with onnxruntime-web and @huggingface/tokenizers, against models in this process."""

import json
import shutil
import subprocess
from contextlib import closing
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import expect, sync_playwright

from triptych_embedded.request import embedded_repository
from triptych_export.families.translation import write_translation
from triptych_export.huggingface.architectures.registry import load
from triptych_export.huggingface.folder import open_folder
from triptych_export.translation_source import TranslationSource
from triptych_export.web_page import PACKAGES, export_web
from triptych_serving.bundle.bundle import open_bundle
from triptych_serving.decoding.engine import EngineOptions
from triptych_serving.encoding.options import EncoderOptions
from triptych_serving.models.decode_model import DecodeModelOptions
from triptych_serving.models.image.image_model import ImageModel
from triptych_serving.models.translation.options import DecodingOptions
from triptych_serving.models.translation.translator import Translator
from triptych_serving.scheduling.request import Finish

from ..fixtures.huggingface import small_model
from ..fixtures.sentences import SENTENCES
from ..service.support.processes import PATIENCE_SECONDS
from .conftest import NODE, npm

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")

pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the packages of the page, and the script that runs models."""
    folder = tmp_path_factory.mktemp("web")
    npm(folder, "install", "--no-save", *(f"{name}@{version}" for name, version in PACKAGES.items()))
    shutil.copy(NODE / "web_model.mjs", folder)
    return folder


def run_in_node(packages: Path, site: Path, inputs: list[Any]) -> list[Any]:
    """Run the model of a page for each input."""
    (site / "inputs.json").write_text(json.dumps(inputs))
    command = ["node", "web_model.mjs", str(site), str(site / "inputs.json")]
    result = subprocess.run(command, cwd=packages, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)
    assert result.returncode == 0, result.stderr
    outputs: list[Any] = json.loads(result.stdout)
    return outputs


def test_embedded_models_run_on_onnxruntime_web(packages: Path, tmp_path: Path) -> None:
    def run(name: str, value: Any) -> Any:
        if not (tmp_path / name).exists():
            export_web(embedded_repository() / name / "1", tmp_path / name)
        return run_in_node(packages, tmp_path / name, [value])[0]

    assert run("en-de", " I have a cat. Where is the station?\n") == " Ich habe eine Katze. Wo ist der Bahnhof?\n"
    assert run("en-de", "Good morning ! </s>") == "Guten Morgen ! </s>"  # spaces stay, and special tokens are text
    assert run("en-de", "I HAVE A CAT. Where is the station?") == "ICH HABE EINE KATZE. Wo ist der Bahnhof?"
    assert run("en-de", "I met Dr. Smith.").count(".") == 2  # one sentence
    [ranked] = run("bert-en", "The war ended in the [MASK] century.")
    assert (ranked[0]["label"], round(ranked[0]["score"], 2)) == ("19th", 0.38)
    assert run("bert-en", "The [SEP] and [CLS] [PAD] [UNK] has [MASK]")[0][0]["score"] < 0.6  # 0.68 with these as tokens
    ranked = run("vit-cifar10", [index % 256 for index in range(32 * 32 * 3)])
    assert (ranked[0]["label"], round(ranked[0]["score"], 2)) == ("cat", 0.82)


def test_t5_translates_as_in_the_server_and_stops_at_its_length(packages: Path, tmp_path: Path) -> None:
    source = load(open_folder(str(small_model("t5", "gated", tmp_path / "checkpoint"))))
    assert isinstance(source, TranslationSource)
    bundle = tmp_path / "bundle"
    write_translation(source, bundle, lambda line: None, precisions=("fp32",))
    texts = [*SENTENCES[:12], "  two   spaces ", "« Ça va ? »", "</s> <extra_id_0> <pad>", "日本語"]
    translator = Translator("t5", 1, open_bundle(bundle), DecodeModelOptions("fp32", EngineOptions(workers=1)))
    with closing(translator):
        translated = translator.translate(texts, DecodingOptions(beam_size=1))
    assert any(one.hypotheses[0].finish is Finish.LENGTH for one in translated)
    export_web(bundle, tmp_path / "site")
    outputs = run_in_node(packages, tmp_path / "site", texts)
    assert [text.strip() for text in outputs] == [one.text.strip() for one in translated]


class QuietHandler(SimpleHTTPRequestHandler):
    """Serves files without a log."""

    def log_message(self, format: str, *args: Any) -> None:
        """Write nothing."""


@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")
def test_the_page_shows_results_of_its_input_alone(packages: Path, tmp_path: Path) -> None:
    for name in ("bert-en", "vit-cifar10"):
        export_web(embedded_repository() / name / "1", tmp_path / name)
        (tmp_path / name / "node_modules").symlink_to(packages / "node_modules")
    pixels = np.random.default_rng(1).integers(0, 256, (90, 70, 4), np.uint8)
    Image.fromarray(pixels).save(tmp_path / "transparent.png")
    with closing(ImageModel("vit", 1, open_bundle(embedded_repository() / "vit-cifar10" / "1"), EncoderOptions())) as model:
        [ranked] = model.classify([(tmp_path / "transparent.png").read_bytes()])
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
            page.set_input_files("#image", tmp_path / "transparent.png")
            expected = "\n".join(f"{100 * one.score:.1f} %  {one.label}".rjust(8) for one in ranked.labels)
            expect(page.locator("#result")).to_have_text(expected)
            page.route("**/node_modules/**", lambda route: route.abort())
            page.goto(f"{url}/bert-en/")
            expect(page.locator("#status")).to_contain_text("Run npm install in the folder of this page.")
    finally:
        server.shutdown()
        server.server_close()
