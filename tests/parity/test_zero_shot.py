"""Zero-shot image classifiers: CLIP checkpoints with labels, exported and served as transformers computes them."""

import json
import math
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from click.testing import CliRunner
from numpy.typing import NDArray
from PIL import Image

from triptych_cli.main import cli
from triptych_export.errors import SourceError
from triptych_export.families.image import ImageFamily
from triptych_export.huggingface.architectures.zero_shot import TEMPLATE
from triptych_export.loading import open_checkpoint
from triptych_export.options import ExportOptions
from triptych_export.parity.image import generate_images
from triptych_serving.runtime.session import Session
from triptych_training.models.vit import Vit

TOLERANCE = 1e-4
LABELS = [f"{colour} {animal}" for colour in ("red", "small", "old", "wild") for animal in ("cat", "dog", "owl", "fox", "emu")]
TEMPLATES = ("a photo of the {}.", "art of {}")
TOWER = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 40}
START, END = "<|startoftext|>", "<|endoftext|>"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small random CLIP, whose tokenizer knows characters only."""
    path: Path = tmp_path_factory.mktemp("clip")
    letters = "abcdefghijklmnopqrstuvwxyz."
    entries = [*letters, *(f"{letter}</w>" for letter in letters), START, END]
    tokenizer = transformers.CLIPTokenizer(vocab={entry: number for number, entry in enumerate(entries)}, merges=[])
    tokenizer.save_pretrained(path)
    ends = {"bos_token_id": entries.index(START), "eos_token_id": entries.index(END), "pad_token_id": 1}
    text = {**TOWER, **ends, "vocab_size": len(entries), "max_position_embeddings": 40}
    vision = {**TOWER, "image_size": 32, "patch_size": 8}
    torch.manual_seed(5)
    model = transformers.CLIPModel(transformers.CLIPConfig(text_config=text, vision_config=vision, projection_dim=20))
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.2 * torch.randn_like(weight))
        model.logit_scale.fill_(math.log(100))  # as in published models; int8 rounds most visibly then
    model.save_pretrained(path)
    transformers.CLIPImageProcessorPil(size={"shortest_edge": 40}, crop_size=32).save_pretrained(path)
    (path / "labels.txt").write_text("\n".join(LABELS) + "\n")
    return path


@torch.inference_mode()
def expected(folder: Path, pictures: Sequence[Any], template: str = TEMPLATE) -> NDArray[np.float32]:
    """Probabilities of transformers, `[pictures, labels]`."""
    model = transformers.CLIPModel.from_pretrained(folder).eval()
    texts = [template.format(label) for label in LABELS]
    rows = transformers.AutoTokenizer.from_pretrained(folder)(texts, padding=True, return_tensors="pt")
    pixels = transformers.CLIPImageProcessorPil.from_pretrained(folder)(pictures, return_tensors="pt")["pixel_values"]
    values: NDArray[np.float32] = model(**rows, pixel_values=pixels).logits_per_image.softmax(-1).numpy()
    return values


def bundle(folder: Path, out: Path, **options: Any) -> Path:
    """Write the graphs without the exporter's checks."""
    opened = open_checkpoint(str(folder), ExportOptions(out, labels=folder / "labels.txt", **options), out)
    assert "8 outputs as in transformers" in opened.origin["original"]
    opened.family.write(out / "bundle", lambda line: None)
    return out / "bundle"


def run(graphs: Path, images: Sequence[Any], precision: str = "fp32") -> NDArray[np.float32]:
    session = Session(graphs / f"graph.{precision}.onnx")
    scores, labels = session.run({"pixels": np.stack(images), "k": np.array([len(LABELS)])}, ["scores", "labels"])
    ordered = np.zeros_like(scores)
    np.put_along_axis(ordered, labels, scores, axis=-1)
    return ordered


def test_a_served_picture_has_the_labels_of_transformers(folder: Path, tmp_path: Path) -> None:
    picture = tmp_path / "picture.png"
    Image.fromarray(generate_images(1, 50, 70)[0]).save(picture)
    command = ["export", str(folder), "--out", str(tmp_path / "models"), "--name", "clip"]
    exported = CliRunner().invoke(cli, [*command, "--labels", str(folder / "labels.txt")])
    assert exported.exit_code == 0, exported.output
    bundle = tmp_path / "models" / "clip" / "1"
    assert (bundle / "labels.txt").read_text().split("\n")[: len(LABELS)] == LABELS
    assert TEMPLATE in (bundle / "MODEL_CARD.md").read_text()
    assert TEMPLATE in json.loads((bundle / "bundle.json").read_text())["provenance"]["zero_shot"]
    place = ["--models", str(tmp_path / "models"), "--model", "clip", "--precision", "fp32"]
    command = [sys.executable, "-m", "triptych_cli", "classify", str(picture), "--json", *place]
    answered = subprocess.run(command, capture_output=True, text=True, check=True)
    best = json.loads(answered.stdout)["labels"][0]
    wanted = expected(folder, [Image.open(picture)])[0]
    assert best["label"] == LABELS[int(wanted.argmax())]
    assert best["score"] == pytest.approx(wanted.max(), abs=TOLERANCE)


def test_graphs_equal_transformers(folder: Path, tmp_path: Path) -> None:
    images = generate_images(6, 32, 32)
    graphs = bundle(folder, tmp_path, templates=TEMPLATES[:1])
    pictures = [Image.fromarray(image).resize((40, 40)) for image in images]
    cropped = [np.asarray(picture.crop((4, 4, 36, 36))) for picture in pictures]
    wanted = expected(folder, pictures, TEMPLATES[0])
    np.testing.assert_allclose(run(graphs, cropped), wanted, atol=TOLERANCE)
    assert np.abs(run(graphs, cropped, "int8") - wanted).mean() < 0.02


def test_the_vectors_of_several_templates_are_averaged(folder: Path, tmp_path: Path) -> None:
    options = ExportOptions(tmp_path, labels=folder / "labels.txt", templates=TEMPLATES)
    family = open_checkpoint(str(folder), options, tmp_path).family
    assert isinstance(family, ImageFamily)
    assert isinstance(family.checkpoint.model, Vit)
    model, total = transformers.CLIPModel.from_pretrained(folder).eval(), torch.zeros(())
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    with torch.inference_mode():
        for template in TEMPLATES:
            rows = tokenizer([template.format(label) for label in LABELS], padding=True, return_tensors="pt")
            total = total + torch.nn.functional.normalize(model.get_text_features(**rows).pooler_output)
        wanted = model.logit_scale.exp() * torch.nn.functional.normalize(total)
    torch.testing.assert_close(family.checkpoint.model.classifier.weight.detach(), wanted, atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b"cat\n\ndog\n", "line 2 is empty; remove it"),
        (b"cat\ndog\ncat\n", "line 1: 'cat' is there 2 times; keep one"),
        (b"cat\n", "has 1 lines, expected 2 to 10000"),
        (b"cat\n\xff\n", "cannot be read as UTF-8"),
        (b"cat\n" + b"x" * 201, "line 2 has 201 characters, the limit is 200"),
        (b"cat\n" + b"x" * 60, "77 tokens, the limit is 40; shorten it"),
    ],
)
def test_wrong_labels_are_refused(folder: Path, tmp_path: Path, content: bytes, fault: str) -> None:
    labels = tmp_path / "labels.txt"
    labels.write_bytes(content)
    with pytest.raises(SourceError, match="labels") as error:
        open_checkpoint(str(folder), ExportOptions(tmp_path, labels=labels), tmp_path)
    assert fault in str(error.value)


def test_options_that_do_not_fit_are_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="add --labels FILE, with one label a line"):
        open_checkpoint(str(folder), ExportOptions(tmp_path), tmp_path)
    labels = folder / "labels.txt"
    with pytest.raises(SourceError, match="expected a text with one"):
        open_checkpoint(str(folder), ExportOptions(tmp_path, labels=labels, templates=["a photo"]), tmp_path)
    with pytest.raises(SourceError, match="only for a CLIPModel"):
        open_checkpoint("tests/fixtures/checkpoint", ExportOptions(tmp_path, labels=labels), tmp_path)
