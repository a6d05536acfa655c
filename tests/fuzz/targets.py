"""Parsers of raw bytes: image files, texts for tokenizers, bundle manifests. A target raises only for a fault."""

import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from unittest import mock

from triptych_serving.bundle.manifest import FILE_NAME, TextManifest, read_manifest
from triptych_serving.bundle.manifest.image import ImageSpec
from triptych_serving.errors import BundleError, InvalidInputError
from triptych_serving.images import image_file
from triptych_serving.images.decode import decode_image
from triptych_serving.text.bert_tokenizer import BertTokenizer
from triptych_serving.text.tokenizers import KeptEncoding
from triptych_serving.text.translation_tokenizer import TranslationTokenizer
from triptych_text.sentences import Splitter
from triptych_text.steps import finish

from ..fixtures.toy import BUNDLE
from .messages import IMAGES, WORDS

FIXTURES = Path(__file__).parents[1] / "fixtures"
ENCODER = FIXTURES / "encoder_models/toy-bert/1"
SPECS = (ImageSpec(8, 8), ImageSpec(8, 8, "shortest-edge", 10, "bicubic"), ImageSpec(4, 6, interpolation="nearest"))
LIMITS = {"MAX_PIXELS": 1_000_000, "MAX_SIDE": 10_000}  # larger ones only take longer
MAX_TOKENS = 64

Target = Callable[[bytes], None]


def image(data: bytes) -> None:
    """Decode an image file, or reject it."""
    for spec in SPECS:
        try:
            with mock.patch.multiple(image_file, **LIMITS):
                decoded = decode_image(data, spec)
        except InvalidInputError:
            continue
        assert decoded.pixels.shape == (spec.height, spec.width, 3)


@cache
def _codec() -> TranslationTokenizer:
    return TranslationTokenizer(BUNDLE / "tokenizer.json", MAX_TOKENS)


@cache
def _bert() -> BertTokenizer:
    manifest = read_manifest(ENCODER)
    assert isinstance(manifest, TextManifest)
    return BertTokenizer(ENCODER / "tokenizer.json", manifest.tokens, MAX_TOKENS)


def text(data: bytes) -> None:
    """Encode and decode a text, or reject it."""
    codec, bert, content = _codec(), _bert(), data.decode("utf-8", "surrogateescape" if data[:1] == b"s" else "replace")
    _attempt(lambda: [codec.decode_stable(ids) for ids in codec.encode([content])])
    _attempt(lambda: codec.decode(finish(codec.encode_prefix_steps([content, "a"], MAX_TOKENS))))
    _attempt(lambda: finish(bert.encode([(content,), (content, content[::-1])], KeptEncoding, offsets=True)))
    _attempt(lambda: finish(bert.encode_masked([content], KeptEncoding, offsets=True)))


def sentences(data: bytes) -> None:
    """Split and join a text, which must not change."""
    content = data.decode("utf-8", "replace")
    for language in ("en", "de", "zh"):
        found = Splitter(language, _codec().fits).split(content)
        assert found.join(found.texts) == content


def _attempt(action: Callable[[], object]) -> None:
    try:
        action()
    except InvalidInputError:
        return


@cache
def _folder() -> Path:
    return Path(tempfile.mkdtemp())


def manifest(data: bytes) -> None:
    """Read a bundle.json, or reject it."""
    (_folder() / FILE_NAME).write_bytes(data)
    try:
        read_manifest(_folder())
    except BundleError:
        return


TARGETS: dict[str, Target] = {"image": image, "text": text, "sentences": sentences, "manifest": manifest}


def seeds(target: str) -> list[bytes]:
    """Return valid inputs to start from."""
    if target == "image":
        return IMAGES
    if target == "manifest":
        return [path.read_bytes() for path in sorted(FIXTURES.glob("manifests/*/*.json"))]
    return [word.encode() for word in WORDS if word]
