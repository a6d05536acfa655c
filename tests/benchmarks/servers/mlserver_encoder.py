"""A text encoder as MLServer's users write one; MLServer imports this file, which a benchmark copies beside its settings."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

from mlserver import MLModel
from mlserver.codecs import NumpyCodec, StringCodec
from mlserver.types import InferenceRequest, InferenceResponse
from plain_encoder import PlainEncoder


class Encoder(MLModel):
    """Mean of the hidden states of each text; `uri` is the model, `extra.folder` has tokenizer.json."""

    async def load(self) -> bool:
        """Open the files; a pool has a thread for each CPU."""
        parameters = self.settings.parameters
        self.encoder = PlainEncoder(parameters.uri, parameters.extra["folder"])
        self.pool = ThreadPoolExecutor(parameters.extra["threads"])
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        """Compute the vector of the request's text."""
        [text] = StringCodec.decode_input(payload.inputs[0])
        vector = await asyncio.get_running_loop().run_in_executor(self.pool, self.encoder.embed, text)
        return InferenceResponse(model_name=self.name, outputs=[NumpyCodec.encode_output("vector", vector[None])])
