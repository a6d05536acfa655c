"""Inputs of the encoder benchmarks, as arrays for ONNX Runtime and PyTorch, and as requests for a server."""

import random
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from triptych.v1 import fill_mask_pb2, fill_mask_pb2_grpc, image_classification_pb2, image_classification_pb2_grpc
from triptych_serving.bundle.bundle import open_bundle
from triptych_serving.bundle.manifest import ImageManifest, TextManifest
from triptych_serving.encoding.options import EncoderOptions
from triptych_serving.images.decode import decode_image
from triptych_serving.models.image.image_model import ImageModel
from triptych_serving.models.text.tasks import FILL_MASK_TASK
from triptych_serving.models.text.text_model import TextModel
from triptych_serving.runtime.cpu_info import usable_cpus
from triptych_training.checkpoints.encoder import load_bert_checkpoint, load_image_checkpoint

TOP_K = 5
Run = Callable[[Sequence[Any]], object]


class TextTask:
    """Fill-mask with texts that contain one [MASK] each."""

    kind = "text"
    outputs = ("scores", "tokens")

    def __init__(self, checkpoint: Path, bundle_folder: Path) -> None:
        self.checkpoint = load_bert_checkpoint(checkpoint)
        self.bundle = open_bundle(bundle_folder)
        manifest = self.bundle.manifest_of(TextManifest)
        self.pad, self.mask, self.cls = manifest.tokens.pad, manifest.tokens.mask, manifest.tokens.cls
        self.sep = manifest.tokens.sep

    def engine(self, options: EncoderOptions) -> tuple[Run, Callable[[], None]]:
        model = TextModel("bench", 1, self.bundle, options)
        return lambda texts: model.run(FILL_MASK_TASK, texts, top_k=TOP_K), model.close

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        pieces = [text.split("[MASK]") for text in texts]
        flat = self.checkpoint.tokenizer.encode_batch([part for pair in pieces for part in pair], add_special_tokens=False)
        return [[self.cls, *flat[2 * i].ids, self.mask, *flat[2 * i + 1].ids, self.sep] for i in range(len(texts))]

    def sizes(self, texts: Sequence[str]) -> list[int]:
        return [len(row) for row in self.encode(texts)]

    def arrays(self, texts: Sequence[str]) -> dict[str, Any]:
        rows = self.encode(texts)
        lengths = np.array([len(row) for row in rows], np.int32)
        ids = np.full((len(rows), lengths.max()), self.pad, np.int32)
        for index, row in enumerate(rows):
            ids[index, : len(row)] = row
        places = np.flatnonzero(ids.reshape(-1) == self.mask)
        segments = np.zeros_like(ids)
        return {"ids": ids, "segments": segments, "lengths": lengths, "places": places, "k": np.array([TOP_K], np.int64)}

    def eager(self, everywhere: bool) -> Run:
        model: Any = self.checkpoint.model

        def run(texts: Sequence[str]) -> object:
            arrays = self.arrays(texts)
            ids, places = torch.from_numpy(arrays["ids"]).long(), torch.from_numpy(arrays["places"])
            segments = torch.zeros_like(ids)
            wanted = torch.arange(ids.numel()) if everywhere else places
            logits = model(ids, segments, wanted)[0]
            return (logits[places] if everywhere else logits).softmax(-1).topk(TOP_K)

        return run


class ImageTask:
    """Image classification of encoded image files."""

    kind = "image"
    outputs = ("scores", "labels")

    def __init__(self, checkpoint: Path, bundle_folder: Path) -> None:
        self.checkpoint = load_image_checkpoint(checkpoint)
        self.bundle = open_bundle(bundle_folder)
        self.spec = self.bundle.manifest_of(ImageManifest).image
        self.pool = ThreadPoolExecutor(usable_cpus())

    def engine(self, options: EncoderOptions) -> tuple[Run, Callable[[], None]]:
        model = ImageModel("bench", 1, self.bundle, options)
        return lambda images: model.classify(images, TOP_K), model.close

    def sizes(self, images: Sequence[bytes]) -> list[int]:
        return [1] * len(images)

    def arrays(self, images: Sequence[bytes]) -> dict[str, Any]:
        pixels = list(self.pool.map(lambda data: decode_image(data, self.spec).pixels, images))
        return {"pixels": np.stack(pixels), "k": np.array([TOP_K], np.int64)}

    def eager(self, everywhere: bool) -> Run:
        image = self.checkpoint.image
        mean, std = (torch.tensor(values).view(1, 3, 1, 1) for values in (image.mean, image.std))

        def run(images: Sequence[bytes]) -> object:
            pixels = torch.from_numpy(self.arrays(images)["pixels"]).permute(0, 3, 1, 2).float() / 255
            return self.checkpoint.model((pixels - mean) / std).softmax(-1).topk(TOP_K)

        return run


EncoderTask = TextTask | ImageTask


def method(kind: str, channel: Any) -> Any:
    """Return the method of the server for texts or images."""
    if kind == "text":
        return fill_mask_pb2_grpc.FillMaskServiceStub(channel).FillMask
    return image_classification_pb2_grpc.ImageClassificationServiceStub(channel).ClassifyImage


def request(kind: str, inputs: Sequence[Any]) -> Any:
    """Return a request with these inputs."""
    if kind == "text":
        return fill_mask_pb2.FillMaskRequest(contents=inputs, top_k=TOP_K)
    return image_classification_pb2.ClassifyImageRequest(images=inputs, top_k=TOP_K)


def encoder_requests(kind: str, inputs: Sequence[Any], each: int) -> tuple[Callable[[Any], Any], list[Any]]:
    """Return the method, and requests with `each` inputs."""
    return partial(method, kind), [request(kind, inputs[start : start + each]) for start in range(0, len(inputs), each)]


def read_images(folder: Path, count: int) -> list[bytes]:
    """Read the files of a folder, repeatedly if there are fewer than `count`."""
    images = [path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()]
    return (images * (count // len(images) + 1))[:count]


def read_texts(path: Path, count: int, tokens: int, task: TextTask) -> list[str]:
    """Read lines and mask one word of each; of about `tokens` tokens, or for 0, of 6 to 120."""
    rng = random.Random(1)
    words = [line.split() for line in path.read_text(encoding="utf-8").splitlines()]
    lines = [line for line in words if 8 <= len(line) <= 80]
    rng.shuffle(lines)
    texts = []
    for line in lines:
        chosen = line[: max(4, round(tokens * 0.7))] if tokens else line
        place = rng.randrange(len(chosen))
        texts.append(" ".join([*chosen[:place], "[MASK]", *chosen[place + 1 :]]))
    sizes = task.sizes(texts[: 4 * count])
    low, high = (tokens - 8, tokens + 8) if tokens else (6, 120)
    return [text for text, size in zip(texts, sizes, strict=False) if low <= size <= high][:count]
