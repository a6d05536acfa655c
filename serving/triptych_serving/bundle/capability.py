"""What a loaded model can be asked for, and how people say it."""

from triptych_serving.bundle.manifest import (
    FILL_MASK,
    IMAGE_CLASSIFICATION,
    QUESTION_ANSWERING,
    TEXT_CLASSIFICATION,
    TEXT_EMBEDDING,
    TOKEN_CLASSIFICATION,
    TRANSLATION,
    Manifest,
    TextManifest,
)
from triptych_serving.errors import UnsupportedError

EMBEDDING = "embedding"  # every model of the text family can

VERBS = {
    TRANSLATION: "translates",
    FILL_MASK: "fills masks",
    EMBEDDING: "embeds text",
    TEXT_CLASSIFICATION: "classifies text",
    TOKEN_CLASSIFICATION: "labels tokens",
    QUESTION_ANSWERING: "answers questions",
    IMAGE_CLASSIFICATION: "classifies images",
}


def capabilities_of(manifest: Manifest) -> frozenset[str]:
    """Its task; a model of the text family embeds, too or alone, and classifies pairs if it can tell what follows a text."""
    if not isinstance(manifest, TextManifest):
        return frozenset({manifest.task})
    more = {TEXT_CLASSIFICATION} if manifest.next_sentence else set()
    return frozenset({manifest.task, EMBEDDING, *more}) - {TEXT_EMBEDDING}


def describe(capabilities: frozenset[str]) -> str:
    """Such as "fills masks, embeds text"."""
    return ", ".join(verb for capability, verb in VERBS.items() if capability in capabilities)


def unsupported(name: str, wanted: str, capabilities: frozenset[str]) -> UnsupportedError:
    """The error of a model that was named for something else."""
    return UnsupportedError(f"model {name!r} is not one that {VERBS[wanted]}; it {describe(capabilities)}")
