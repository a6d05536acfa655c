"""Comparison of generated texts."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from triptych_export.parity.generation import compare_generation


def test_texts_that_ended_at_once_have_no_next_token() -> None:
    """A file of ONNX Runtime GenAI takes no text without tokens."""

    def model(ids: torch.Tensor) -> torch.Tensor:
        assert ids.numel()
        return torch.zeros(*ids.shape, 4)

    source: Any = SimpleNamespace(model=model)
    nothing = np.zeros(0, np.float32), np.zeros(0, np.int64)
    scores = np.full(2, np.log(0.25), np.float32), np.zeros(2, np.int64)
    report = compare_generation(source, [[1], [1, 2, 3]], {"int4": [nothing, scores]})["int4"]
    assert (report["decisions"], report["top_1_agreement_percent"]) == (2, 100)
