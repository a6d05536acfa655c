"""Translate with an engine in this process."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from triptych.decoding import DecodingOptions
from triptych_cli.translation.backend import Candidate, PairScore, TextTranslation
from triptych_embedded.models import backend_errors, open_registry
from triptych_embedded.request import TranslationRequest
from triptych_serving.bundle.manifest import TRANSLATION
from triptych_serving.models.translation.postprocess import Translation
from triptych_serving.models.translation.translator import Translator
from triptych_serving.repository.registry import ModelSelector


@contextmanager
def open_embedded(request: TranslationRequest) -> "Iterator[EmbeddedBackend]":
    """Load the model of a request; unload it afterwards. Raises BackendError: it cannot be loaded."""
    with open_registry(request, TRANSLATION) as registry:
        with backend_errors():
            translator = registry.find(ModelSelector(request.model, "", request.source_language, request.target_language))
        yield EmbeddedBackend(translator, request)


class EmbeddedBackend:
    """A Backend with a loaded model."""

    batch = 1_024

    def __init__(self, translator: Translator, request: TranslationRequest) -> None:
        self._translator = translator
        self._decoding = request.decoding
        self._languages = request.source_language, request.target_language

    def translate(self, texts: Sequence[str]) -> list[TextTranslation]:
        with backend_errors():
            return [
                _result(output) for output in self._translator.translate(texts, self._options(len(texts)), *self._languages)
            ]

    def stream(self, text: str) -> Iterator[str | TextTranslation]:
        with backend_errors():
            for event in self._translator.stream(text, self._options(1), *self._languages):
                yield _result(event) if isinstance(event, Translation) else event

    def score(self, pairs: Sequence[tuple[str, str]]) -> list[PairScore]:
        with backend_errors():
            scores = self._translator.score(pairs, *self._languages)
        return [PairScore(score.log_probability, score.token_log_probabilities.tolist()) for score in scores]

    def _options(self, texts: int) -> DecodingOptions:
        return replace(self._decoding, target_prefix=self._decoding.target_prefix * texts)


def _result(output: Translation) -> TextTranslation:
    candidates = [
        Candidate(
            each.text,
            each.finish.value,
            each.token_count,
            each.score,
            None if each.alignment is None else each.alignment.tolist(),
            each.spans,
        )
        for each in output.hypotheses
    ]
    return TextTranslation(candidates, output.source_token_count, output.source_spans)
