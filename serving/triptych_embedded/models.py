"""An engine in this process."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from triptych_cli.common.decoding import AUTO, OFF
from triptych_embedded.request import (
    EMBEDDED_CALL,
    FIELD,
    BackendError,
    Candidate,
    InputError,
    Place,
    Request,
    Scored,
    Translated,
)
from triptych_serving.bundle.manifest import TRANSLATION, read_manifest
from triptych_serving.decoding.engine import EngineOptions
from triptych_serving.errors import BundleError, InvalidInputError, ServingError
from triptych_serving.models.capabilities import capabilities_of
from triptych_serving.models.translation.options import DecodingOptions, SplitSentences
from triptych_serving.models.translation.postprocess import Translation, TranslationHypothesis
from triptych_serving.models.translation.translator import Translator, TranslatorOptions
from triptych_serving.repository.loading import load_registry
from triptych_serving.repository.placement import Hardware
from triptych_serving.repository.registry import ModelSelector, Registry
from triptych_serving.repository.repository import VersionFolder, newest_versions

SPLIT = {None: None, AUTO: SplitSentences.AUTO, OFF: SplitSentences.OFF}


class EmbeddedBackend:
    """Loads the model when entered.

    Args:
        request: what the command line asks for.
        repository: where models lie.
    """

    batch = EMBEDDED_CALL

    def __init__(self, request: Request, repository: Path) -> None:
        self._request = request
        self._repository = repository

    def __enter__(self) -> Self:
        request = self._request
        wish = ModelSelector(request.model, "", request.source_language, request.target_language)
        with as_backend_errors():
            self._registry: Registry = open_registry(self._repository, request, TRANSLATION)
            self._translator: Translator = self._registry.find(wish)
        return self

    def __exit__(self, *details: object) -> None:
        self._registry.close(drain=False)

    def translate(self, texts: Sequence[str]) -> list[Translated]:
        with as_backend_errors():
            outputs = self._translator.translate(texts, self._options(len(texts)), *self._languages)
        return [_translated(output) for output in outputs]

    def stream(self, text: str) -> Iterator[str | Translated]:
        with as_backend_errors():
            for event in self._translator.stream(text, self._options(1), *self._languages):
                yield _translated(event) if isinstance(event, Translation) else event

    def score(self, pairs: Sequence[tuple[str, str]]) -> list[Scored]:
        with as_backend_errors():
            scores = self._translator.score(pairs, *self._languages)
        return [Scored(score.log_probability, score.token_log_probabilities.tolist()) for score in scores]

    @property
    def _languages(self) -> tuple[str, str]:
        return self._request.source_language, self._request.target_language

    def _options(self, texts: int) -> DecodingOptions:
        decoding = self._request.decoding
        return DecodingOptions(**decoding.values(texts), split_sentences=SPLIT[decoding.split_sentences])


def _translated(output: Translation) -> Translated:
    candidates = [_candidate(hypothesis) for hypothesis in output.hypotheses]
    return Translated(candidates, output.source_token_count, output.source_spans)


def _candidate(hypothesis: TranslationHypothesis) -> Candidate:
    weights = hypothesis.alignment
    return Candidate(
        hypothesis.text,
        hypothesis.finish.value,
        hypothesis.token_count,
        hypothesis.score,
        None if weights is None else weights.tolist(),
        hypothesis.spans,
    )


def open_registry(repository: Path, place: Place, capability: str, engine: EngineOptions | None = None) -> Registry:
    """Load what a command needs, and no more where the repository leaves no choice.

    Args:
        repository: where models lie.
        place: what the command line asks for.
        capability: what the model must be able to do.
        engine: of translation models; by default all CPUs work.

    Raises:
        BackendError: nothing could be loaded.
        ServingError: the device cannot be had, or the repository cannot be read.
    """
    options = TranslatorOptions(place.precision) if engine is None else TranslatorOptions(place.precision, engine)
    hardware = Hardware.parse(place.device, place.gpu_memory_limit)
    registry = load_registry(repository, options, place.model or only_model(repository, capability), hardware=hardware)
    faults = [loaded.fault for loaded in registry.models if loaded.fault]
    if faults and not registry.ready:
        raise BackendError("; ".join(faults))
    return registry


def only_model(repository: Path, capability: str) -> str:
    """The name of the one model that can do it; empty where there are none or several."""
    names = [entry.name for entry in newest_versions(repository) if capability in _capabilities(entry)]
    return names[0] if len(names) == 1 else ""


def _capabilities(entry: VersionFolder) -> frozenset[str]:
    try:
        return capabilities_of(read_manifest(entry.folder))
    except BundleError:  # loading tells what is wrong
        return frozenset()


@contextmanager
def as_backend_errors() -> Iterator[None]:
    try:
        yield
    except InvalidInputError as error:
        match = FIELD.fullmatch(error.field)
        raise InputError(int(match[1]), error.problem) if match else BackendError(str(error)) from error
    except ServingError as error:
        raise BackendError(str(error)) from error
