"""Translate with a server."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Self

from triptych_cli.common.connection import client_errors, connect, translation_arguments
from triptych_cli.translation.backend import Candidate, PairScore, TextTranslation
from triptych_client import DecodingOptions, Translation
from triptych_embedded.request import TranslationRequest


class RemoteBackend:
    """A Backend that calls the server at `request.server`. A context manager."""

    batch = 1_024  # the client divides them into requests

    def __init__(self, request: TranslationRequest) -> None:
        self._client = connect(request.server)
        self._arguments = translation_arguments(request)
        self._decoding = request.decoding

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *details: object) -> None:
        self._client.close()

    def translate(self, texts: Sequence[str]) -> list[TextTranslation]:
        with client_errors():
            found = self._client.translate_many(texts, options=self._options(len(texts)), **self._arguments)
        return [_result(translation) for translation in found]

    def stream(self, text: str) -> Iterator[str | TextTranslation]:
        options = self._options(1)
        with client_errors(), self._client.translate_stream(text, options=options, **self._arguments) as stream:
            yield from stream
            yield _result(stream.translation)

    def score(self, pairs: Sequence[tuple[str, str]]) -> list[PairScore]:
        with client_errors():
            scores = self._client.score_translations(pairs, **self._arguments)
        return [PairScore(score.log_probability, score.token_log_probabilities) for score in scores]

    def _options(self, texts: int) -> DecodingOptions:
        return replace(self._decoding, target_prefix=self._decoding.target_prefix * texts)


def _result(translation: Translation) -> TextTranslation:
    candidates = [
        Candidate(each.text, each.finish_reason.value, each.token_count, each.score, each.alignment or None, each.spans)
        for each in translation.hypotheses
    ]
    return TextTranslation(candidates, translation.source_token_count, translation.source_spans)
