"""A translation checkpoint in one form, whether trained here or loaded from Hugging Face."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tokenizers import Tokenizer

from triptych_export.onnx_files.decoder import Seq2Seq
from triptych_serving.bundle.manifest import SourceFrame, TargetFrame
from triptych_training.checkpoints.translation import ARCHITECTURE, RNN, Checkpoint
from triptych_training.data.corpus import Pair
from triptych_training.models.rnn import Rnn


@dataclass(frozen=True)
class TranslationSource:
    """A translation model with tokenizers, languages, limits and generation settings."""

    model: Seq2Seq  # the network, or ONNX files that are kept as they are
    tokenizer: Tokenizer  # source tokenizer, whose ids end with the end-of-sentence token if sources have one
    sources: Mapping[str, SourceFrame]  # source frames by language code
    targets: Mapping[str, TargetFrame]  # target frames by language code
    max_source: int  # longest source in tokens, frame and end included
    max_target: int  # longest target in tokens, frame and end included
    target_tokenizer: Tokenizer | None = None  # only if it differs from that of sources
    # Members of the manifest's `generation` that differ from its defaults.
    generation: Mapping[str, Any] = field(default_factory=dict)
    splits: bool = True  # whether texts are split into sentences by default
    lowers_capitals: bool = False  # whether the model gets sentences in capitals in lower case
    family: str = ARCHITECTURE
    provenance: Mapping[str, Any] = field(default_factory=dict)
    samples: Sequence[Pair] = ()

    @classmethod
    def of(cls, checkpoint: Checkpoint) -> "TranslationSource":
        """Wrap a checkpoint that was trained with triptych_training."""
        limit, languages = checkpoint.model.config.max_positions, checkpoint.languages
        sources = languages.sources or (checkpoint.source_language,)
        targets = {code: TargetFrame(before=(token,)) for code, token in languages.targets.items()}
        return cls(
            checkpoint.model,
            checkpoint.tokenizer,
            {code: SourceFrame() for code in sources},
            targets or {checkpoint.target_language: TargetFrame()},
            limit,
            limit,
            family=RNN if isinstance(checkpoint.model, Rnn) else ARCHITECTURE,
            provenance=checkpoint.provenance,
            samples=checkpoint.samples,
        )
