"""A decoder-only checkpoint in one form, whether trained here or loaded from elsewhere."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from triptych_export.onnx_files.decoder import OnnxGpt
from triptych_training.checkpoints.encoder import ImagePreprocessing
from triptych_training.checkpoints.gpt import GPT, GptCheckpoint
from triptych_training.models.gpt import Gpt


@dataclass(frozen=True)
class GenerationSource:
    """A decoder-only model with its tokenizer, special ids and generation settings."""

    model: Gpt | OnnxGpt  # the network, or an ONNX file that is kept as it is
    tokenizer: Tokenizer | None  # None: the tokens are `colours`
    pad: int  # id that pads prompts; any token
    ends: Sequence[int]  # ids that end a text
    start: int | None = None  # id that stands for an empty prompt
    # Members of the manifest's `generation` that differ from its defaults.
    generation: Mapping[str, Any] = field(default_factory=dict)
    template: str = ""  # Jinja template of chats; empty: none
    variables: Mapping[str, str] = field(default_factory=dict)  # texts of special tokens, for the template
    family: str = GPT
    provenance: Mapping[str, Any] = field(default_factory=dict)
    samples: Sequence[str] = ()  # texts for parity and perplexity
    colours: NDArray[np.float32] | None = None  # `[tokens, 3]` from -1 to 1, of a model that completes images
    image: ImagePreprocessing | None = None  # how a file becomes an image whose pixels are among the colours
    languages: Mapping[str, str] = field(default_factory=dict)  # code -> name, of a model whose template asks it to translate

    @classmethod
    def of(cls, checkpoint: GptCheckpoint) -> "GenerationSource":
        """Wrap a checkpoint that was trained with triptych_training."""
        return cls(
            checkpoint.model,
            checkpoint.tokenizer,
            checkpoint.end,
            (checkpoint.end,),
            checkpoint.end,
            provenance=checkpoint.provenance,
            samples=checkpoint.samples,
        )
