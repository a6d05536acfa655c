"""What an export is to write."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from triptych_export.bundle_files import EXTRAS, HALF_PRECISION, PRECISIONS
from triptych_export.errors import SourceError
from triptych_export.families.shortlist import SHORT_PRECISION

DEFAULT_PRECISIONS = ("int8", "fp32")


@dataclass(frozen=True)
class ExportOptions:
    """What to write.

    Args:
        repository: where models live; the bundle becomes `<repository>/<name>/<version>`.
        name: the model's name; empty: `<source>-<target>`, the architecture of a model of many languages, or the task.
        version: 0: the next free one.
        precisions: those to ship; the first is the default, or the one behind fp16. None: int8, fp32, and int8-shortlist where
            there is a shortlist; fp16, which is for CUDA, and int8-stable have to be named. Parity is always shown on fp32.
        valid: files for parity instead of the sample in the checkpoint folder: sentence pairs, lines of text, or images.
        notes: Markdown for the model card: data, licence, intended use.
        shortlist: files of sentence pairs, best those of the training, that a translation model's shortlist is learnt from;
            empty: it gets none.
        source_language: the only one of a multilingual Hugging Face checkpoint that the bundle is to offer, or what the source
            of one that names no languages is; `valid` is in this one. Empty: all of them.
        target_language: the same of targets.
    """

    repository: Path
    name: str = ""
    version: int = 0
    precisions: Sequence[str] | None = None
    valid: Sequence[str] = ()
    notes: str = ""
    shortlist: Sequence[str] = ()
    source_language: str = ""
    target_language: str = ""

    def check(self) -> None:
        """Refuse what contradicts itself.

        Raises:
            SourceError: precisions do not exist, or do not go with the rest.
        """
        if SHORT_PRECISION in self.shipped and not self.shortlist:
            raise SourceError(f"precision: {SHORT_PRECISION} is learnt from sentence pairs; name them with --shortlist")
        if self.shortlist and SHORT_PRECISION not in self.shipped:
            raise SourceError(f"shortlist: serves {SHORT_PRECISION} alone, which is not among the precisions to ship")
        known = (*PRECISIONS, *EXTRAS, *([SHORT_PRECISION] if self.shortlist else []))
        unknown = [precision for precision in self.shipped if precision not in known]
        if unknown or not self.shipped:
            raise SourceError(f"precision: {', '.join(unknown) or 'none'} is unknown; choose from {', '.join(known)}")

    @property
    def shipped(self) -> Sequence[str]:
        """The precisions."""
        usual = (*DEFAULT_PRECISIONS, SHORT_PRECISION) if self.shortlist else DEFAULT_PRECISIONS
        return usual if self.precisions is None else self.precisions

    @property
    def default(self) -> str:
        """The first of them that is for every processor; servers with a GPU prefer fp16 by themselves."""
        return next((precision for precision in self.shipped if precision != HALF_PRECISION), self.shipped[0])

    @property
    def extras(self) -> tuple[str, ...]:
        """Those of them that are written only where they are asked for."""
        return tuple(precision for precision in EXTRAS if precision in self.shipped)
