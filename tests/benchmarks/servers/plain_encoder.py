"""A text encoder as users of ONNX Runtime write one. Needs no package of Triptych: MLServer runs a copy of it."""

from pathlib import Path

import numpy as np
import onnxruntime
from numpy.typing import NDArray
from tokenizers import Tokenizer


class PlainEncoder:
    """Mean of the hidden states of one text at a time."""

    def __init__(self, model: str, folder: str) -> None:
        self._tokenizer = Tokenizer.from_file(str(Path(folder) / "tokenizer.json"))
        self._tokenizer.no_padding()
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1  # the pool has a thread for each CPU
        self._session = onnxruntime.InferenceSession(model, options)
        self._inputs = [one.name for one in self._session.get_inputs()]
        outputs = self._session.get_outputs()
        self._states = next(one.name for one in outputs if len(one.shape) == 3 and one.type == "tensor(float)")

    def embed(self, text: str) -> NDArray[np.float32]:
        """Compute the vector of a text."""
        ids = np.array([self._tokenizer.encode(text).ids])
        values = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
        [states] = self._session.run([self._states], {name: values[name] for name in self._inputs})
        mean: NDArray[np.float32] = states[0].mean(0)
        return mean
