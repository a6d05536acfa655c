"""Translate with an engine in this process."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from triptych.decoding import DecodingOptions
from triptych_cli.common.lines import run_each
from triptych_cli.translation.backend import Candidate, PairScore, TextTranslation, default_options
from triptych_embedded.models import backend_errors, open_registry
from triptych_embedded.request import InputError, TranslationRequest
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

    batch = 256  # as fast as 1,024; progress and unfinished files lose less

    def __init__(self, translator: Translator, request: TranslationRequest) -> None:
        self._translator = translator
        self._request = request
        self._languages = request.source_language, request.target_language

    def translate(self, texts: Sequence[str], options: DecodingOptions | None = None) -> list[TextTranslation | InputError]:
        def run(some: Sequence[str]) -> list[TextTranslation]:
            chosen = options or default_options(self._request, len(some))
            with backend_errors():
                return [_result(output) for output in self._translator.translate(some, chosen, *self._languages)]

        return run_each(run, texts)

    def stream(self, text: str) -> Iterator[str | TextTranslation]:
        with backend_errors():
            for event in self._translator.stream(text, default_options(self._request, 1), *self._languages):
                yield _result(event) if isinstance(event, Translation) else event

    def score(self, pairs: Sequence[tuple[str, str]]) -> list[PairScore | InputError]:
        def run(some: Sequence[tuple[str, str]]) -> list[PairScore]:
            with backend_errors():
                scores = self._translator.score(some, *self._languages)
            return [PairScore(score.log_probability, score.token_log_probabilities.tolist()) for score in scores]

        return run_each(run, pairs)


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
