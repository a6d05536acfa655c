"""Generation of images with an autoencoder: gRPC, the Open Inference Protocol and the command line."""

import asyncio
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import tritonclient.grpc
from click.testing import CliRunner

from triptych_cli.main import cli
from triptych_client import AsyncClient, Client, FailedPreconditionError, InvalidArgumentError
from triptych_export.exporter import ExportOptions, export
from triptych_serving.bundle.bundle import open_bundle
from triptych_training.checkpoints.vae import VaeCheckpoint, save_vae_checkpoint
from triptych_training.models.vae import Vae, VaeConfig, log_evidence, log_weights

from .support.in_process import options_of, serving
from .support.messages import noise, pixels_of

SIZE, LATENTS = 16, 6


@dataclass(frozen=True)
class Served:
    """A server with one model, which generates images of 16 x 16 pixels from 6 latents."""

    model: Vae
    repository: Path
    address: str
    client: Client


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("vae")
    torch.manual_seed(3)
    model = Vae(VaeConfig(SIZE, width=4, latent_dim=LATENTS)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2)  # such that images differ
    save_vae_checkpoint(VaeCheckpoint(model), folder / "checkpoint")
    export(folder / "checkpoint", ExportOptions(folder / "models", "vae"), lambda line: None)
    with serving(options_of(folder / "models")) as server, Client(f"127.0.0.1:{server.port}") as client:
        yield Served(model, folder / "models", f"127.0.0.1:{server.port}", client)


def picture(seed: int) -> bytes:
    return noise(SIZE, SIZE, seed)


def decoded(model: Vae, latents: Any) -> Any:
    """Pixels that PyTorch decodes."""
    with torch.no_grad():
        return (model.decode(torch.tensor(latents)).mean * 255).round().byte().numpy()


def test_graphs_equal_pytorch(served: Served) -> None:
    report = open_bundle(served.repository / "vae/1").manifest.parity["fp32"]
    assert max(report["largest_difference"].values()) < 1e-5
    assert report["distinct_outputs"] == report["samples"] == 40


def test_random_images_are_reproducible_and_those_of_their_latents(served: Served) -> None:
    found = served.client.generate_images(count=5, seed=7)
    latents = [each.latents for each in found.images]
    assert np.array_equal([pixels_of(each.image) for each in found.images], decoded(served.model, latents))
    assert served.client.generate_images(count=2, seed=7).images == found.images[:2]
    assert served.client.generate_images(latents=latents).images == found.images
    assert len({each.image for each in (*found.images, *served.client.generate_images().images)}) == 6
    assert (found.model, found.timing.inference_seconds > 0) == ("vae", True)


def test_images_are_reconstructed_and_interpolated(served: Served) -> None:
    first, last = (served.client.reconstruct_image(picture(seed)).images[0] for seed in (1, 2))
    with torch.no_grad():
        expected = served.model.encode(torch.from_numpy(pixels_of(picture(1)).copy())[None]).mean[0]
    assert first.latents == pytest.approx(expected.tolist(), abs=1e-5)
    between = served.client.interpolate(picture(1), picture(2), steps=3).images
    assert (between[0].image, between[2].image) == (first.image, last.image)
    assert between[1].latents == pytest.approx((np.array(first.latents) + last.latents) / 2, abs=1e-6)
    assert np.array_equal(pixels_of(between[1].image), decoded(served.model, [between[1].latents])[0])
    assert len(served.client.interpolate(picture(1), picture(2)).images) == 8


def test_asynchronous_client(served: Served) -> None:
    async def ask() -> None:
        async with AsyncClient(served.address) as client:
            assert (await client.generate_images(seed=1)).images == served.client.generate_images(seed=1).images
            one = await client.reconstruct_image(picture(1))
            assert (await client.interpolate(picture(1), picture(2))).images[0].image == one.images[0].image

    asyncio.run(ask())


BAD: dict[str, tuple[str, list[bytes], dict[str, Any], str]] = {
    "no image": ("generate_images", [], {"count": 0}, "count: 0 is out of range, it must be at least 1"),
    "many images": (
        "generate_images",
        [],
        {"count": 1 << 30},
        "count: 1,073,741,824 rows in one request, at most 16,384 can wait",
    ),
    "few latents": ("generate_images", [], {"latents": [[0.5] * 5]}, r"latents\[0\].values: 5 numbers, must be 6 finite ones"),
    "infinite": ("generate_images", [], {"latents": [[0.0] * 6, [float("inf")] * 6]}, r"latents\[1\].values: 6 numbers, must"),
    "both": ("generate_images", [], {"latents": [[0.0] * 6], "seed": 1}, "seed: it is for random latents; leave it out"),
    "not an image": ("reconstruct_image", [b"{}"], {}, r"images\[0\]: it is not an image"),
    "one step": ("interpolate", [picture(1), picture(2)], {"steps": 1}, "steps: 1 is out of range, it must be at least 2"),
    "damaged": ("interpolate", [picture(1), picture(2)[:-30]], {}, r"images\[1\]: "),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_requests_are_refused_by_name(served: Served, case: str) -> None:
    method, images, arguments, message = BAD[case]
    with pytest.raises(InvalidArgumentError, match=message):
        getattr(served.client, method)(*images, **arguments)


def test_other_models_and_tasks_are_refused(served: Served) -> None:
    with pytest.raises(FailedPreconditionError, match="model 'vae' is not one that completes images; it generates images"):
        served.client.complete_image(picture(1), model="vae")
    assert served.client.model("vae").services == ("triptych.v1.ImageGenerationService",)


def test_the_command_line_writes_what_the_client_returns(served: Served, tmp_path: Path) -> None:
    for name in (1, 2):
        (tmp_path / f"{name}.png").write_bytes(picture(name))
    first, last = str(tmp_path / "1.png"), str(tmp_path / "2.png")
    random = [pixels_of(each.image) for each in served.client.generate_images(count=3, seed=4).images]
    grid = np.vstack([np.hstack(random[:2]), np.hstack([random[2], np.zeros_like(random[2])])])
    between = [pixels_of(each.image) for each in served.client.interpolate(first, last, steps=3).images]
    commands = {
        "generate-image --count 3 --seed 4": grid,
        f"reconstruct-image {first}": between[0],
        f"interpolate-images {first} {last} --steps 3": np.hstack(between),
    }
    for place in (["--server", served.address], ["--models", str(served.repository)]):
        for command, expected in commands.items():
            outcome = CliRunner().invoke(cli, [*command.split(), "-o", str(tmp_path / "grid.png"), *place])
            assert outcome.exit_code == 0, outcome.output
            assert np.array_equal(pixels_of((tmp_path / "grid.png").read_bytes()), expected)
            (tmp_path / "grid.png").unlink()


def test_the_command_line_names_the_file_that_is_no_image(served: Served, tmp_path: Path) -> None:
    good, bad = tmp_path / "good.png", tmp_path / "bad.png"
    good.write_bytes(picture(1))
    bad.write_text("text")
    outcome = CliRunner().invoke(
        cli, ["interpolate-images", str(good), str(bad), "-o", str(tmp_path / "grid.png"), "--models", str(served.repository)]
    )
    assert (outcome.exit_code, outcome.output.startswith(f"Error: {bad}: it is not an image")) == (1, True), outcome.output


def test_the_command_line_refuses_pictures_that_are_too_large(served: Served, tmp_path: Path) -> None:
    command = ["generate-image", "--count", "9" * 9, "-o", str(tmp_path / "grid.png"), "--models", str(served.repository)]
    outcome = CliRunner().invoke(cli, command)
    assert outcome.exit_code == 1
    assert outcome.output.startswith("Error: count: 999,999,999 images of ")
    assert "pixels, a picture has at most 64,000,000; ask for fewer" in outcome.output


def test_open_inference_protocol(served: Served) -> None:
    client = tritonclient.grpc.InferenceServerClient(served.address)
    random = client.infer("vae", [], parameters={"count": 2, "seed": 7})
    assert list(random.as_numpy("generated_image")) == [
        each.image for each in served.client.generate_images(count=2, seed=7).images
    ]
    tensor = tritonclient.grpc.InferInput("image", [2], "BYTES")
    tensor.set_data_from_numpy(np.array([picture(1), picture(2)], np.object_))
    outputs = [tritonclient.grpc.InferRequestedOutput(name) for name in ("generated_image", "latents")]
    found = client.infer("vae", [tensor], outputs=outputs)
    expected = [served.client.reconstruct_image(picture(seed)).images[0] for seed in (1, 2)]
    assert list(found.as_numpy("generated_image")) == [each.image for each in expected]
    assert np.array_equal(found.as_numpy("latents"), np.array([each.latents for each in expected], np.float32))
    assert len(client.infer("vae", [tensor], parameters={"steps": 5}).as_numpy("generated_image")) == 5
    with pytest.raises(tritonclient.grpc.InferenceServerException, match=r"parameters\.count: it is for random latents"):
        client.infer("vae", [tensor], parameters={"count": 2})


def test_the_evidence_of_the_served_bundle_is_pytorchs(served: Served, tmp_path: Path) -> None:
    for label, seed in (("a", 1), ("a", 2), ("b", 3), ("b", 4)):
        (tmp_path / label).mkdir(exist_ok=True)
        (tmp_path / label / f"{seed}.png").write_bytes(picture(seed))
    options = f"--samples 5 --hold-out 2 --json --models {served.repository}"
    outcome = CliRunner().invoke(cli, ["evaluate", "image-generation", str(tmp_path), *options.split()])
    assert outcome.exit_code == 0, outcome.output
    found = json.loads(outcome.output)
    pixels = torch.from_numpy(np.stack([pixels_of(picture(seed)) for seed in (2, 4)]))
    torch.manual_seed(1)
    with torch.no_grad():
        weights = log_weights(pixels, served.model.encode(pixels), served.model.decode, 5)
    assert (found["images"], found["bound_nats"]) == (2, pytest.approx(-float(weights.mean()), abs=1e-2))
    nats = -float(log_evidence(weights).mean())
    assert found["evidence_nats"] == pytest.approx(nats, abs=1e-2)
    assert found["evidence_bits_per_dimension"] == pytest.approx(nats / (SIZE * SIZE * 3) / math.log(2), abs=1e-4)
