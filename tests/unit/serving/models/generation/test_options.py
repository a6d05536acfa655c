"""A model's own way of sampling, and requests that choose another."""

from dataclasses import replace
from typing import Any

import pytest

from triptych.decoding import DecodingOptions
from triptych_models import REPOSITORY
from triptych_serving.bundle.bundle import open_bundle
from triptych_serving.bundle.manifest import TextGenerationManifest
from triptych_serving.models.generation.options import GenerationRequest, resolve_generation

MANIFEST = open_bundle(REPOSITORY / "gpt-en" / "1").manifest_of(TextGenerationManifest)
USUAL: dict[str, Any] = {"sampling_topk": 50, "sampling_topp": 0.9, "sampling_minp": 0.1, "sampling_temperature": 0.7}


@pytest.mark.parametrize(
    ("options", "drawn"),
    [
        ({}, (50, 0.9, 0.1, 0.7)),
        ({"sampling_temperature": 0.3}, (50, 0.9, 0.1, 0.3)),
        ({"sampling_minp": 0.0}, (50, 0.9, 0.0, 0.7)),
        ({"sampling_minp": 0.2}, (0, 1.0, 0.2, 1.0)),
        ({"sampling_topp": 0.5}, (0, 0.5, 0.0, 1.0)),
        ({"sampling_topk": 0, "sampling_minp": 0.2}, (0, 1.0, 0.2, 1.0)),
        ({"sampling_topk": 1}, (1, 1.0, 0.0, 1.0)),
        ({"beam_size": 2}, (1, 1.0, 0.0, 1.0)),
    ],
)
def test_a_request_that_limits_the_tokens_replaces_the_models_limits(options: dict[str, Any], drawn: tuple[float, ...]) -> None:
    manifest = replace(MANIFEST, generation=replace(MANIFEST.generation, **USUAL))
    request = GenerationRequest(prompts=("a",), options=DecodingOptions(**options))
    search = resolve_generation(request, manifest, context=100, slots=8).search
    assert (search.sampling_topk, search.sampling_topp, search.sampling_minp, search.temperature) == drawn
