"""What a translation bundle is made from, wherever it was trained."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tokenizers import Tokenizer

from triptych_serving.bundle.manifest import SourceFrame, TargetFrame
from triptych_training.checkpoints.translation import ARCHITECTURE, Checkpoint
from triptych_training.data.corpus import Pair
from triptych_training.models.transformer import Transformer


@dataclass(frozen=True)
class TranslationSource:
    """A model with all that belongs to it.

    `tokenizer` gives a text's ids and the end of the sentence; `target_tokenizer` where targets have another vocabulary.
    `sources` and `targets` are by language code. `generation` holds members of the manifest's, `max_length` among them, where
    they are not the defaults. Limits are in tokens, frames and end included.
    """

    model: Transformer
    tokenizer: Tokenizer
    sources: Mapping[str, SourceFrame]
    targets: Mapping[str, TargetFrame]
    max_source: int
    max_target: int
    target_tokenizer: Tokenizer | None = None
    generation: Mapping[str, Any] = field(default_factory=dict)
    splits: bool = True
    family: str = ARCHITECTURE
    provenance: Mapping[str, Any] = field(default_factory=dict)
    samples: Sequence[Pair] = ()

    @classmethod
    def of(cls, checkpoint: Checkpoint) -> "TranslationSource":
        """A checkpoint that was trained here."""
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
            provenance=checkpoint.provenance,
            samples=checkpoint.samples,
        )

    @property
    def targets_tokenizer(self) -> Tokenizer:
        """Of the target side."""
        return self.target_tokenizer or self.tokenizer
