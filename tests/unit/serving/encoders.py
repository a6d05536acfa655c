"""Toy models of the text and image families, loaded for a test."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from triptych_serving.bundle.bundle import Bundle, open_bundle
from triptych_serving.encoding.options import EncoderOptions
from triptych_serving.models.image.image_model import ImageModel
from triptych_serving.models.text.text_model import TextModel

from ...fixtures.encoders import write_image_bundle, write_text_bundle

OPTIONS = EncoderOptions(runs=1)
GRAPH = {"graph": "model.fp32.onnx"}
TWO_WAYS = {"fp32": GRAPH, "fp16": GRAPH}  # precisions of one graph, run in two ways


def text_model(folder: Path, task: str = "fill-mask", options: EncoderOptions = OPTIONS, **members: Any) -> closing[TextModel]:
    """Load a text model; `members` go to its manifest."""
    return closing(TextModel(task, 1, open_bundle(write_text_bundle(folder, task, **members)), options))


@contextmanager
def image_model(folder: Path) -> Iterator[ImageModel]:
    """Load an image model."""
    model = ImageModel("toy", 1, open_bundle(write_image_bundle(folder)), OPTIONS)
    try:
        yield model
    finally:
        model.close(drain=False)


@contextmanager
def both_ways(kind: Any, bundle: Bundle, **options: Any) -> Iterator[tuple[Any, Any]]:
    """Load a model whose precisions are TWO_WAYS for the CPU, and over buckets."""
    plain, bucketed = (kind("toy", 1, bundle, EncoderOptions(name, runs=1, **options)) for name in TWO_WAYS)
    with closing(plain), closing(bucketed):
        yield plain, bucketed
