"""Text that is generated in fp16 on the device is that of fp32 on the CPU, but for ties that rounding decides."""

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from triptych.decoding import DecodingOptions
from triptych_export.families.generation import write_generation
from triptych_serving.bundle.bundle import Bundle, open_bundle
from triptych_serving.decoding.engine import EngineOptions
from triptych_serving.models.decode_model import DecodeModelOptions
from triptych_serving.models.generation.generator import Generator
from triptych_serving.models.generation.options import GenerationRequest
from triptych_serving.runtime.device import CPU, Device

from ..fixtures.decoders import decoder_source
from ..fixtures.sentences import SENTENCES

pytestmark = pytest.mark.gpu

PROMPTS = [SENTENCES[place][: 1 + 5 * place % 60] for place in range(48)]
LEAST_AGREEMENT = 0.85  # of texts; random weights decide more ties than trained ones
SEARCHES: dict[str, dict[str, Any]] = {
    "greedy": {"sampling_topk": 1},
    "beams": {"beam_size": 3},
    "samples of all tokens": {"sampling_topk": 0, "sampling_temperature": 0.2, "seed": 4},
}


@pytest.fixture(scope="module", params=["llama", "gpt2", "qwen3"])
def decoder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    folder: Path = tmp_path_factory.mktemp("decoder") / "bundle"
    write_generation(decoder_source(request.param), folder, lambda line: None, [], ("fp16", "fp32"))
    return open_bundle(folder)


@pytest.mark.parametrize("search", SEARCHES)
def test_texts_agree_with_fp32_on_the_cpu(decoder: Bundle, device: Device, search: str) -> None:
    requests = [
        GenerationRequest(prompts=PROMPTS, options=DecodingOptions(**SEARCHES[search]), max_tokens=16),
        GenerationRequest(prompts=PROMPTS[::2], options=DecodingOptions(**SEARCHES[search]), max_tokens=16),  # kept prefixes
    ]
    half, whole = (_texts(decoder, precision, place, requests) for precision, place in (("fp16", device), ("fp32", CPU)))
    equal = sum(one == other for one, other in zip(half, whole, strict=True))
    assert equal >= LEAST_AGREEMENT * len(whole)


def _texts(bundle: Bundle, precision: str, device: Device, requests: list[GenerationRequest]) -> list[str]:
    engine = EngineOptions(workers=1, slots=16, devices=(device,))
    with closing(Generator("model", 1, bundle, DecodeModelOptions(precision, engine))) as generator:
        return [result.text for request in requests for result in generator.generate(request)]
