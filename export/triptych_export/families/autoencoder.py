"""Export of variational autoencoders."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import torch

from triptych_export.bundle_files import first_manifest, graphs_member, write_graph, write_manifest
from triptych_export.card import Description
from triptych_export.families.family import Report, Say
from triptych_export.families.image import GENERATED_IMAGES, PARITY_IMAGES, read_image
from triptych_export.graphs.tracing import trace_autoencoder
from triptych_export.parity.comparison import Outputs, check_answers, spread
from triptych_export.parity.image import answer_autoencoder, generate_images
from triptych_export.quantization.weights_file import WeightsFile
from triptych_serving.bundle.manifest import IMAGE_SAMPLING
from triptych_serving.bundle.manifest.image import LATENTS, LOG_SCALES, LOG_VARIANCES, PIXELS, ImageSpec
from triptych_serving.runtime.session import Session
from triptych_training.checkpoints.vae import VAE, VaeCheckpoint

KINDS = ("encode", "decode")


class AutoencoderFamily:
    """A variational autoencoder.

    Args:
        checkpoint: model and provenance.
        images: image files for parity; empty: generated images.

    Raises:
        SourceError: an image cannot be read.
    """

    default_name, default_precisions = IMAGE_SAMPLING, ("fp32",)

    def __init__(self, checkpoint: VaeCheckpoint, images: Sequence[str]) -> None:
        self.model, self.provenance = checkpoint.model.eval(), checkpoint.provenance
        size = self.model.config.image_size
        self.spec = ImageSpec(size, size)
        self.images = [read_image(path, self.spec) for path in spread(images, PARITY_IMAGES)]
        self.images = self.images or generate_images(GENERATED_IMAGES, size, size)

    def describe(self) -> Description:
        config = self.model.config
        rows = {"image (pixels)": config.image_size, "latents": config.latent_dim, "channels": config.width}
        return Description("Generates images from random latents, and reconstructs images from theirs.", rows)

    def write(self, folder: Path, say: Say) -> None:
        """Write both graphs and a first manifest; see Family."""
        folder.mkdir()
        say("tracing the graphs")
        weights = WeightsFile(folder / "weights.fp32.bin")
        for kind, graph in trace_autoencoder(self.model).items():
            write_graph(graph, folder / f"{kind}.fp32.onnx", weights, "fp32")
        precisions = {"fp32": graphs_member(KINDS, "fp32")}
        shape = {"image": asdict(self.spec), "latents": self.model.config.latent_dim}
        write_manifest(folder, first_manifest(IMAGE_SAMPLING, VAE, precisions, **shape))

    def measure(self, folder: Path, say: Say) -> tuple[Report, Report]:
        """Compare both graphs with PyTorch; see Family."""
        say("comparing the bundle with PyTorch")
        encoder, decoder = (Session(folder / f"{kind}.fp32.onnx") for kind in KINDS)
        expected = self._expected()
        parity = check_answers(expected, lambda size: answer_autoencoder(encoder, decoder, self.images, expected, size))
        return {"fp32": parity}, dict(self.provenance.get("metrics", {}))

    @torch.no_grad()
    def _expected(self) -> list[Outputs]:
        """Compute PyTorch's parameters of q(z|x) and of p(x|z), with z the mean of q(z|x)."""
        answers: list[Outputs] = []
        for pixels in self.images:
            q = self.model.encode(torch.from_numpy(pixels)[None])
            p = self.model.decode(q.mean)
            values = zip((LATENTS, LOG_VARIANCES, PIXELS, LOG_SCALES), (*q, *p), strict=True)
            answers.append({name: value[0].numpy() for name, value in values})
        return answers
