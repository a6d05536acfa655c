"""Loading of checkpoints, from triptych_training or Hugging Face, as exportable families."""

from dataclasses import dataclass
from pathlib import Path

from triptych_export.bundle_files import STABLE_PRECISION
from triptych_export.errors import SourceError
from triptych_export.families.family import Family
from triptych_export.families.image import ImageFamily, open_image_family
from triptych_export.families.text import TextFamily, open_text_family, read_samples
from triptych_export.families.translation import TranslationFamily, open_translation_family
from triptych_export.huggingface.architectures import registry
from triptych_export.huggingface.folder import Folder, open_folder
from triptych_export.options import ExportOptions
from triptych_export.translation_source import TranslationSource
from triptych_training.checkpoints.encoder import BERT, VIT, BertCheckpoint
from triptych_training.checkpoints.translation import ARCHITECTURE as TRANSFORMER
from triptych_training.data.corpus import read_pairs

OURS = (TRANSFORMER, BERT, VIT)


@dataclass(frozen=True)
class OpenedCheckpoint:
    """A family and the files of its weights."""

    family: Family
    weights: tuple[Path, ...]


def open_checkpoint(name: str, options: ExportOptions) -> OpenedCheckpoint:
    """Load a checkpoint from a path or from the Hugging Face hub.

    Raises:
        SourceError: there is no checkpoint, its architecture is unknown, or options do not apply to it.
        TrainingError: a checkpoint of triptych_training, or a file of samples, cannot be read.
    """
    folder = open_folder(name)
    architecture = str(folder.config.get("architecture", ""))
    if architecture in OURS:
        _refuse_languages(folder, options)
        return OpenedCheckpoint(_open_ours(folder.path, architecture, options), _weight_files(folder.path))
    if architecture and not folder.model_type:
        raise SourceError(
            f"{folder.path}: architecture {architecture!r} is unknown; supported: {', '.join(OURS)}, and types of Hugging Face"
        )
    loaded = registry.load(folder, options.source_language, options.target_language)
    if isinstance(loaded, TranslationSource):
        return OpenedCheckpoint(_translation(loaded, options), _weight_files(folder.path))
    _refuse_translation_options(folder, options)
    family = (
        TextFamily(loaded, read_samples(options.valid), options.extras)
        if isinstance(loaded, BertCheckpoint)
        else ImageFamily(loaded, options.valid, options.extras)
    )
    return OpenedCheckpoint(family, _weight_files(folder.path))


def _open_ours(folder: Path, architecture: str, options: ExportOptions) -> Family:
    if architecture == TRANSFORMER:
        return open_translation_family(folder, options.valid, options.shortlist, options.extras)
    _refuse_translation_options(Folder(folder), options)
    open_family = open_text_family if architecture == BERT else open_image_family
    return open_family(folder, options.valid, options.extras)


def _translation(source: TranslationSource, options: ExportOptions) -> TranslationFamily:
    pairs, lexicon = read_pairs(options.valid), read_pairs(options.shortlist)
    return TranslationFamily(source, pairs, lexicon, options.extras)


def _refuse_translation_options(folder: Folder, options: ExportOptions) -> None:
    stable = STABLE_PRECISION in options.shipped
    for name, wanted in (("shortlist", options.shortlist), (f"precision {STABLE_PRECISION}", stable)):
        if wanted:
            kind = folder.config.get("architecture") or folder.model_type
            raise SourceError(f"{name}: only for translation models; {folder.path} is a {kind}")


def _refuse_languages(folder: Folder, options: ExportOptions) -> None:
    if options.source_language or options.target_language:
        raise SourceError(f"source_language, target_language: not applicable, {folder.path} records its languages")


def _weight_files(folder: Path) -> tuple[Path, ...]:
    """List the weight files, safetensors first."""
    for pattern in ("model*.safetensors", "pytorch_model*.bin"):
        if files := sorted(folder.glob(pattern)):
            return tuple(files)
    return ()
