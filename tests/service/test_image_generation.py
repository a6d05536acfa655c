"""Completion of images on a real port: gRPC, the Open Inference Protocol and the command line."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc
from click.testing import CliRunner

from triptych_cli.main import cli
from triptych_client import Client, FailedPreconditionError, InvalidArgumentError

from ..fixtures.toy import IMAGE_GENERATION_MODELS
from .support.in_process import options_of, serving
from .support.messages import noise, pixels_of

SAMPLED: dict[str, Any] = {"sampling_topk": 0, "sampling_temperature": 2.0, "seed": 5}


@dataclass(frozen=True)
class Served:
    """A server with one model, which completes images of 6 x 6 pixels, and the upper half of an image."""

    repository: Path
    address: str
    client: Client
    half: bytes


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    repository = IMAGE_GENERATION_MODELS
    with serving(options_of(repository)) as server, Client(f"127.0.0.1:{server.port}") as client:
        yield Served(repository, f"127.0.0.1:{server.port}", client, noise(12, 6))


def test_completions_keep_the_upper_part_and_are_reproducible(served: Served) -> None:
    first = served.client.complete_image(served.half, n=3, return_scores=True, **SAMPLED)
    images = [pixels_of(each.image) for each in first.images]
    assert (first.rows, [image.shape for image in images]) == (3, [(6, 6, 3)] * 3)
    assert all((image[:3] == images[0][:3]).all() for image in images)
    assert len({image.tobytes() for image in images}) == 3
    assert all(each.score is not None and each.score < 0 for each in first.images)
    alone = served.client.complete_image(served.half, **SAMPLED)
    assert (alone.image, alone.images[0].score) == (first.image, None)
    assert served.client.complete_image(noise(6, 6), rows=2).rows == 2


def test_repeated_colours_can_be_penalized(served: Served) -> None:
    """The graph has no logit of the start token, which occurs in every image."""
    plain = served.client.complete_image(served.half, sampling_topk=1).image
    for options in ({"repetition_penalty": 5.0}, {"repetition_penalty": 5.0, "beam_size": 2}, {"no_repeat_ngram_size": 1}):
        assert served.client.complete_image(served.half, sampling_topk=1, **options).image != plain


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "not an image": ({"image": b"{}"}, r"images\[0\]: it is not an image"),
    "rows": ({"rows": 6}, "rows: 6 is out of range, it must be at least 0 and at most 5"),
    "missing rows": ({"rows": 4}, r"images\[0\]: scaled to a width of 6 pixels, it has 3 rows, fewer than the 4 to keep"),
    "side": ({"image": noise(1, 70_000)}, r"images\[0\]: .*the limit of a side is 65535 pixels"),
    "n": ({"n": 2}, "n: 2 is above beam_size, which is 1"),
    "samples": ({"n": 1_000, "sampling_topk": 0}, "n: 1000 is above the limit of 4"),
    "length": ({"max_length": 3}, "options.max_length: does not apply to completed images"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_requests_are_refused_by_name(served: Served, case: str) -> None:
    arguments, message = BAD[case]
    with pytest.raises(InvalidArgumentError, match=message):
        served.client.complete_image(**{"image": served.half, **arguments})
    with pytest.raises(FailedPreconditionError, match="it completes images"):
        served.client.generate("x", model="igpt")


def test_the_command_line_writes_what_the_client_returns(served: Served, tmp_path: Path) -> None:
    half, flags = tmp_path / "half.png", ["--sampling-topk", "0", "--sampling-temperature", "2", "--seed", "5", "-n", "2"]
    half.write_bytes(served.half)
    expected = [each.image for each in served.client.complete_image(served.half, n=2, **SAMPLED).images]
    for place in (["--server", served.address], ["--models", str(served.repository)]):
        outcome = CliRunner().invoke(cli, ["complete-image", str(half), "-o", str(tmp_path / "whole.png"), *flags, *place])
        assert outcome.exit_code == 0, outcome.output
        files = [tmp_path / f"whole-{number}.png" for number in (1, 2)]
        assert [file.read_bytes() for file in files] == expected
        for file in files:
            file.unlink()


def test_open_inference_protocol(served: Served) -> None:
    client = tritonclient.grpc.InferenceServerClient(served.address)
    tensor = tritonclient.grpc.InferInput("image", [2], "BYTES")
    tensor.set_data_from_numpy(np.array([served.half, served.half], np.object_))
    found = client.infer("igpt", [tensor], parameters={"sampling_topk": 1, "n": 1})
    expected = served.client.complete_image(served.half, sampling_topk=1).image
    assert list(found.as_numpy("completed_image")) == [expected, expected]
