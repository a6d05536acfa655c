"""A text encoder as MLServer's users write one; MLServer imports this file, which a benchmark copies beside its settings."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnxruntime
from mlserver import MLModel
from mlserver.codecs import NumpyCodec, StringCodec
from mlserver.types import InferenceRequest, InferenceResponse
from tokenizers import Tokenizer


class Encoder(MLModel):
    """Mean of the hidden states of each text; `uri` is the model, `extra.folder` has tokenizer.json."""

    async def load(self) -> bool:
        """Open the files; a pool has a thread for each CPU."""
        parameters = self.settings.parameters
        self.tokenizer = Tokenizer.from_file(str(Path(parameters.extra["folder"]) / "tokenizer.json"))
        self.tokenizer.no_padding()
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(parameters.uri, options)
        self.pool = ThreadPoolExecutor(parameters.extra["threads"])
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        """Compute the vector of the request's text."""
        [text] = StringCodec.decode_input(payload.inputs[0])
        vector = await asyncio.get_running_loop().run_in_executor(self.pool, self.embed, text)
        return InferenceResponse(model_name=self.name, outputs=[NumpyCodec.encode_output("vector", vector[None])])

    def embed(self, text: str) -> np.ndarray:
        """Compute the vector of a text."""
        ids = np.array([self.tokenizer.encode(text).ids])
        values = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
        outputs = self.session.get_outputs()
        name = next(one.name for one in outputs if len(one.shape) == 3 and one.type == "tensor(float)")
        [states] = self.session.run([name], {one.name: values[one.name] for one in self.session.get_inputs()})
        return states[0].mean(0)
