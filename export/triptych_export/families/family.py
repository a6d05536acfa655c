"""Interface that every family of models implements for the exporter, and the parity measurement of encoders."""

import gc
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import nn

from triptych_export.bundle_files import open_encoder
from triptych_export.card import Description
from triptych_export.graphs.float16 import check_activations
from triptych_export.parity.comparison import QUANTIZED_BATCH, Outputs, check_answers, compare_answers
from triptych_serving.bundle.manifest import FP16
from triptych_serving.runtime.process import trim_heap
from triptych_serving.runtime.session import Session

LARGE = 1 << 28  # bytes of weights
Say = Callable[[str], None]  # receives progress, one line at a time
Report = dict[str, Any]


def free_memory(model: nn.Module, *derived: nn.Module) -> None:
    """Free the weights that `derived` models do not share with `model`, and graphs and sessions that nothing needs any more.

    The tracing library still refers to weights of the last graph. Of a small model, the third of a second that it takes to find
    cycles of references would be most of the time.
    """
    kept = {id(parameter) for parameter in model.parameters()}
    for parameter in (each for other in derived for each in other.parameters()):
        if id(parameter) not in kept:
            parameter.data = torch.empty(0)
    if sum(parameter.nbytes for parameter in model.parameters()) > LARGE:
        gc.collect()
        trim_heap()


class Family(Protocol):
    """A loaded checkpoint of one architecture that can be exported."""

    @property
    def default_name(self) -> str:
        """Name of the model if the user gives none."""

    @property
    def default_precisions(self) -> Sequence[str]:
        """Precisions to ship if the user names none; empty: the usual ones."""

    @property
    def provenance(self) -> Mapping[str, Any]:
        """Provenance of the training."""

    def describe(self) -> Description:
        """Describe the model for its card."""

    def write(self, folder: Path, say: Say) -> None:
        """Create `folder` with graphs in the precisions to compare, tokenizers or labels, and a manifest."""

    def measure(self, folder: Path, say: Say) -> tuple[Report, Report]:
        """Measure parity and quality of the written files, for the manifest.

        Raises:
            ParityError: the outputs of the float32 graphs differ from PyTorch's.
        """


class EncoderFamily(ABC):
    """Base of text encoders and image classifiers.

    Args:
        model: the network whose activations have to fit into float16, if that is written.
        provenance: of the training, with quality under "metrics".
        precisions: those to write and compare, fp32 first.
    """

    default_precisions: Sequence[str] = ()
    language_model = False  # vectors are the states of one, see `compare_answers`

    def __init__(self, model: nn.Module, provenance: Mapping[str, Any], precisions: Sequence[str]) -> None:
        self.provenance, self.precisions = provenance, precisions
        self._model = model

    def measure(self, folder: Path, say: Say) -> tuple[Report, Report]:
        """Compare the written graphs with PyTorch; see Family."""
        say("computing the outputs in PyTorch")
        with check_activations(self._model) if FP16 in self.precisions else nullcontext():
            expected = self._expected()
        say("comparing the bundle with PyTorch")
        parity: Report = {}
        for precision in self.precisions:
            session = open_encoder(folder, precision)
            if precision == "fp32":
                parity[precision] = check_answers(expected, partial(self._run, session))
            else:
                parity[precision] = compare_answers(expected, self._run(session, QUANTIZED_BATCH), self.language_model)
        return parity, dict(self.provenance.get("metrics", {}))

    @abstractmethod
    def _expected(self) -> list[Outputs]:
        """Compute PyTorch's outputs of all samples."""

    @abstractmethod
    def _run(self, session: Session, size: int) -> list[Outputs]:
        """Compute the graph's outputs of all samples, `size` at a time."""
