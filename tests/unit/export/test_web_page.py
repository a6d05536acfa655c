"""Bundles for the browser: the graphs that onnxruntime-web runs give the server's tokens, and other models are refused."""

import json
import shutil
import subprocess
from io import BytesIO
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from PIL import Image

from triptych_embedded.request import embedded_repository
from triptych_export.errors import SourceError
from triptych_export.web_page import export_web, image_settings
from triptych_serving.bundle.manifest.image import INTERPOLATIONS, ImageSpec
from triptych_serving.images.decode import decode_image
from triptych_serving.text.translation_tokenizer import TranslationTokenizer

from ...fixtures.encoders import write_text_bundle
from ...fixtures.framed import copy_framed

BUNDLE = embedded_repository() / "en-de" / "1"


def test_the_step_without_padding_gives_the_servers_tokens(tmp_path: Path) -> None:
    export_web(BUNDLE, tmp_path / "site")
    assert {"index.html", "model.js", "page.js", "package.json"} <= {one.name for one in (tmp_path / "site").iterdir()}
    folder = tmp_path / "site" / "model"
    settings = json.loads((folder / "model.json").read_text(encoding="utf-8"))
    tokenizer = TranslationTokenizer(BUNDLE / "tokenizer.json", settings["most_source"])
    encoder, step = (onnxruntime.InferenceSession(folder / settings["graphs"][name]) for name in ("encoder", "step"))
    [ids] = tokenizer.encode(["I have a cat."])
    assert [one.name for one in encoder.get_inputs()] == ["source", "lengths"]
    [memory] = encoder.run(None, {"source": np.array([ids]), "lengths": np.array([len(ids)], np.int32)})
    inputs = {"forced": np.array([-1])}
    for index in range(2 * settings["layers"]):
        name = f"{'value' if index % 2 else 'key'}_{index // 2}"
        inputs[f"memory_{name}"] = memory[index]
        inputs[f"cache_{name}"] = np.zeros((1, settings["heads"], settings["most_target"], settings["head_dim"]), np.float32)
    tokens = [settings["start"]]
    names = [one.name for one in step.get_outputs()]
    while tokens[-1] != settings["end"] and len(tokens) < 20:
        place = {"tokens": np.array(tokens[-1:]), "positions": np.array([len(tokens) - 1], np.int32)}
        outputs = dict(zip(names, step.run(None, {**inputs, **place}), strict=True))
        tokens.append(int(outputs.pop("next")[0]))
        inputs |= {name.replace("present", "cache"): value for name, value in outputs.items()}
    assert tokenizer.decode([tokens[1:-1]]) == ["Ich habe eine Katze."]


@pytest.mark.skipif(shutil.which("node") is None, reason="Node is not installed")
def test_pictures_are_scaled_as_in_the_server(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    cases, expected = [], []
    for interpolation in INTERPOLATIONS:
        for width, height, spec in (
            (90, 70, ImageSpec(32, 48, interpolation=interpolation)),
            (30, 200, ImageSpec(32, 20, interpolation=interpolation)),  # Pillow begins with the rows
            (61, 47, ImageSpec(32, 24, resize_height=35, resize_width=31, interpolation=interpolation)),
            (75, 100, ImageSpec(17, 16, "shortest-edge", 21, interpolation)),
            (100, 12, ImageSpec(16, 16, "shortest-edge", 17, interpolation)),
            (73, 31, ImageSpec(16, 18, "shortest-edge", 19, interpolation, round_crop=True)),
        ):
            pixels = random.integers(0, 256, (height, width, 4), np.uint8)
            Image.fromarray(pixels).save(file := BytesIO(), "PNG")
            expected.append(decode_image(file.getvalue(), spec).pixels.ravel().tolist())
            picture = {"width": width, "height": height, "pixels": pixels.ravel().tolist()}
            cases.append([picture, image_settings(spec)])
    export_web(BUNDLE, tmp_path / "site")
    (tmp_path / "site" / "cases.json").write_text(json.dumps(cases))
    script = (
        'import { fitted } from "./model.js"; import { readFileSync } from "node:fs";'
        'const results = JSON.parse(readFileSync("cases.json", "utf8")).map((one) => [...fitted(...one)]);'
        "console.log(JSON.stringify(results));"
    )
    command = ["node", "--input-type=module", "--eval", script]
    result = subprocess.run(command, cwd=tmp_path / "site", capture_output=True, text=True, check=True)
    assert json.loads(result.stdout) == expected


def test_other_models_are_refused(tmp_path: Path) -> None:
    for folder, problem in (
        (write_text_bundle(tmp_path / "models", "question-answering"), "not this model"),
        (copy_framed(tmp_path / "framed"), "not this model"),
        (tmp_path, "no bundle; export the checkpoint first"),
    ):
        with pytest.raises(SourceError, match=problem):
            export_web(folder, tmp_path / "site")
    with pytest.raises(SourceError, match="not empty"):
        export_web(BUNDLE, tmp_path)
