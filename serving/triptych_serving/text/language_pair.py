"""Which of a model's languages a request means, and what they put around its texts."""

from dataclasses import dataclass

from triptych_serving.bundle.languages import UNDETERMINED, choose_language, find_language
from triptych_serving.bundle.manifest import Framing, TranslationManifest

SOURCE, TARGET = "source_language_code", "target_language_code"  # fields of a request


@dataclass(frozen=True)
class LanguagePair:
    """Resolved."""

    language: str  # of the texts, for who splits them
    framing: Framing


def has_pair(manifest: TranslationManifest, source: str, target: str) -> bool:
    """Whether the model has what a request's codes mean; empty ones mean anything.

    Raises:
        InvalidInputError: a code is malformed; names its field.
    """
    sides = (source, manifest.source_languages, SOURCE), (target, manifest.target_languages, TARGET)
    return all(not code or find_language(code, offered, field) is not None for code, offered, field in sides)


def takes_any(manifest: TranslationManifest) -> bool:
    """Whether the model names no language, on one side at least."""
    return UNDETERMINED in manifest.source_languages or UNDETERMINED in manifest.target_languages


def resolve_pair(manifest: TranslationManifest, source: str, target: str) -> LanguagePair:
    """The model's pair for a request's codes, either of which may be empty where the model has one language on that side.

    Raises:
        InvalidInputError: a code is malformed, is none of the model's, or is missing where there are several; names its field.
    """
    near = choose_language(source, manifest.source_languages, SOURCE)
    far = choose_language(target, manifest.target_languages, TARGET)
    return LanguagePair(source if source and near == UNDETERMINED else near, manifest.frames.of(near, far))
