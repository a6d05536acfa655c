"""`triptych serve --device cuda`: all tasks on one GPU, as users run it."""

import asyncio
from contextlib import closing
from pathlib import Path

import pytest

from triptych_client import AsyncClient, Client, DecodingOptions
from triptych_serving.bundle.bundle import open_bundle
from triptych_serving.encoding.options import EncoderOptions
from triptych_serving.models.image.image_model import ImageModel
from triptych_serving.models.text.text_model import TextModel
from triptych_serving.runtime.device import Device

from ..fixtures.toy import PAIRS, SOURCES
from ..service.support.processes import ServerProcess
from .models import picture
from .test_encoders import assert_near, best_labels, best_tokens, classified, filled, masked

pytestmark = pytest.mark.gpu

IN_FLIGHT = 128


def serve(repository: Path, device: Device) -> ServerProcess:
    return ServerProcess(repository, "--device", str(device), "--precision", "fp16", "--slots", "64")


def test_translations_beams_and_streams_are_those_that_were_learnt(repository: Path, device: Device) -> None:
    with serve(repository, device) as server, Client(server.address) as client:
        translations = client.translate_many([source for source, _ in PAIRS])
        assert [translation.text for translation in translations] == [target for _, target in PAIRS]
        beams = client.translate_many(SOURCES[:20], options=DecodingOptions(beam_size=4))
        assert [translation.text for translation in beams] == [target for _, target in PAIRS[:20]]
        with client.translate_stream(SOURCES[0]) as pieces:
            assert "".join(pieces) == PAIRS[0][1]


def test_masks_and_images_are_answered_as_in_fp32(repository: Path, device: Device) -> None:
    texts, images = masked()[:12], [picture(seed) for seed in range(12)]
    exact = TextModel("a", 1, open_bundle(repository / "toy-bert" / "1"), EncoderOptions("fp32"))
    labels = ImageModel("b", 1, open_bundle(repository / "toy-vit" / "1"), EncoderOptions("fp32"))
    with closing(exact), closing(labels), serve(repository, device) as server, Client(server.address) as client:
        found = client.fill_mask_many(texts, model="toy-bert", top_k=2).items
        assert_near(best_tokens(found), filled(exact, texts))
        seen = client.classify_image_many(images, model="toy-vit", top_k=2).items
        assert_near(best_labels(seen), classified(labels, images))


def test_many_requests_at_once(repository: Path, device: Device) -> None:
    async def ask(address: str) -> list[str]:
        async with AsyncClient(address) as client:
            gate = asyncio.Semaphore(IN_FLIGHT)

            async def one(source: str) -> str:
                async with gate:
                    return (await client.translate(source)).text

            return list(await asyncio.gather(*(one(source) for source, _ in PAIRS)))

    with serve(repository, device) as server:
        assert asyncio.run(ask(server.address)) == [target for _, target in PAIRS]
