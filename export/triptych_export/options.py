"""Options of an export."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from triptych_export.bundle_files import EXTRAS, PRECISIONS, SHORT_PRECISION
from triptych_export.errors import SourceError
from triptych_serving.bundle.manifest import FP16

DEFAULT_PRECISIONS = ("int8", "fp32")


@dataclass(frozen=True)
class ExportOptions:
    """Options of an export."""

    repository: Path  # the model repository; the bundle becomes `<repository>/<name>/<version>`
    name: str = ""  # the model's name; empty: `<source>-<target>`, the architecture of a multilingual model, or the task
    version: int = 0  # the version; 0: the next free one
    # Precisions to ship; the first one other than fp16 is the default. None: int8 and fp32, and int8-shortlist if there is a
    # shortlist; fp16 (for CUDA) must be named. Parity is always checked on fp32.
    precisions: Sequence[str] | None = None
    # Files for parity instead of the sample in the checkpoint folder: sentence pairs, lines of text, or images.
    valid: Sequence[str] = ()
    notes: str = ""  # Markdown for the model card: data, licence, intended use
    # Files of sentence pairs, ideally the training data, from which a translation model's lexicon is learnt: for the choice of
    # alignment heads and, if it is shipped, precision int8-shortlist.
    shortlist: Sequence[str] = ()
    # The only source language of a multilingual Hugging Face checkpoint that the bundle offers, or the source language of a
    # checkpoint that names none; `valid` is in this language. Empty: all languages.
    source_language: str = ""
    target_language: str = ""  # the same for targets
    # Ship precisions below the floors of `parity.gate`, which the model card then records; fp32 must be equal.
    allow_inexact: bool = False
    base_model: str = ""  # base model of a PEFT adapter, a folder or a name on the hub; empty: the one that the adapter names
    revision: str = ""  # commit, tag or branch of a model on the hub; empty: the newest
    # Members of a Hugging Face checkpoint's JSON files to ignore although they are not supported, which the model card then
    # records.
    ignore_config: Sequence[str] = ()
    # Export a checkpoint that computes something else than in transformers; the model card records it.
    allow_different: bool = False
    # Accept a translation model that gives too few different texts for a meaningful parity check.
    allow_untrained: bool = False
    # Folder with config.json and the tokenizer or image processor of ONNX files that have none beside them.
    config_from: Path | None = None
    labels: Path | None = None  # file with the labels of a zero-shot image classifier (CLIP), one a line
    templates: Sequence[str] = ()  # make a prompt of each label, in place of {}; empty: "This is a photo of {}."

    lower_capitals: bool = False  # a translation model gets sentences in capitals in lower case

    # Languages of a decoder-only model that is to translate, and its prompt: see `translation_prompt.ask_to_translate`.
    translation_languages: Sequence[str] = ()
    translation_prompt: str = ""

    def check(self) -> None:
        """Reject contradictory options; raises SourceError if a precision is unknown or does not fit the other options."""
        if SHORT_PRECISION in self.shipped and not self.shortlist:
            raise SourceError(f"precision: {SHORT_PRECISION} needs sentence pairs to learn from; add --shortlist FILE")
        if self.translation_prompt and not self.translation_languages:
            raise SourceError("translation_prompt: is set without translation_languages, such as en,de")
        known = (*PRECISIONS, *EXTRAS, *([SHORT_PRECISION] if self.shortlist else []))
        unknown = [precision for precision in self.shipped if precision not in known]
        if unknown or not self.shipped:
            raise SourceError(f"precision: {', '.join(unknown) or 'none'} is unknown; choose from {', '.join(known)}")

    @property
    def shipped(self) -> Sequence[str]:
        """Precisions to ship."""
        usual = (*DEFAULT_PRECISIONS, SHORT_PRECISION) if self.shortlist else DEFAULT_PRECISIONS
        return usual if self.precisions is None else self.precisions

    @property
    def default(self) -> str:
        """Default precision: the first that runs on every processor. Servers with a GPU prefer fp16 without being told."""
        return next((precision for precision in self.shipped if precision != FP16), self.shipped[0])
