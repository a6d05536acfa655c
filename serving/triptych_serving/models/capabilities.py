"""The capabilities of a model: the tasks that it can be requested for."""

from triptych_serving.bundle.manifest import (
    IMAGE_CLASSIFICATION,
    IMAGE_GENERATION,
    IMAGE_SAMPLING,
    TENSORS,
    TEXT_CLASSIFICATION,
    TEXT_EMBEDDING,
    TEXT_GENERATION,
    TRANSLATION,
    Manifest,
    TextManifest,
)
from triptych_serving.errors import UnsupportedError
from triptych_serving.models.text.embedding import EMBEDDING
from triptych_serving.models.text.neighbors import NEIGHBORS
from triptych_serving.models.text.rerank import RERANK
from triptych_serving.models.text.tasks import TEXT_TASKS

VERBS = {
    TRANSLATION: "translates",
    **{name: task.verb for name, task in TEXT_TASKS.items()},
    IMAGE_CLASSIFICATION: "classifies images",
    TEXT_GENERATION: "continues texts",
    IMAGE_GENERATION: "completes images",
    IMAGE_SAMPLING: "generates images",
    TENSORS: "takes plain tensors",
}


def capabilities_of(manifest: Manifest) -> frozenset[str]:
    """Return a model's capabilities.

    They are its task; a model of the text family with vectors also embeds, one with next-sentence prediction classifies pairs,
    a classifier of pairs with one label reranks, and a table of vectors finds neighbors.
    """
    if not isinstance(manifest, TextManifest):
        return frozenset({manifest.task})
    more = {EMBEDDING} if manifest.vectors else set()
    if manifest.next_sentence:
        more.add(TEXT_CLASSIFICATION)
    if manifest.task == TEXT_CLASSIFICATION and manifest.pairs and len(manifest.labels) == 1:
        more.add(RERANK)
    if manifest.similarities:
        more.add(NEIGHBORS)
    return frozenset({manifest.task, *more}) - {TEXT_EMBEDDING}


def describe(capabilities: frozenset[str]) -> str:
    """Describe capabilities, such as "fills masks, embeds text"."""
    return ", ".join(verb for capability, verb in VERBS.items() if capability in capabilities)


def unsupported(name: str, wanted: str, capabilities: frozenset[str]) -> UnsupportedError:
    """Return the error for a model that lacks the requested capability."""
    return UnsupportedError(f"model {name!r} is not one that {VERBS[wanted]}; it {describe(capabilities)}")
