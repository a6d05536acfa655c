"""Translate with a server."""

from collections.abc import Iterator, Sequence
from typing import Self

from triptych_cli.common.connection import PatientClient, input_problem, translation_arguments
from triptych_cli.translation.backend import Candidate, PairScore, TextTranslation, default_options
from triptych_client import DecodingOptions, InvalidArgumentError, Translation
from triptych_client.arguments import ScoreArguments
from triptych_embedded.request import INPUT_FIELD, InputError, TranslationRequest


class RemoteBackend:
    """A Backend that calls the server at `request.server`. A context manager."""

    batch = 1_024  # the client divides them into requests

    def __init__(self, request: TranslationRequest) -> None:
        self._client = PatientClient(request.server)
        self._arguments = translation_arguments(request)
        self._request = request

    def __enter__(self) -> Self:
        self._client.__enter__()
        return self

    def __exit__(self, *details: object) -> None:
        self._client.__exit__(*details)

    def translate(self, texts: Sequence[str], options: DecodingOptions | None = None) -> list[TextTranslation | InputError]:
        options = options or default_options(self._request, len(texts))
        found = self._client.run("translate_many", texts, options=options, **self._arguments)
        return [each if isinstance(each, InputError) else _result(each) for each in found]

    def stream(self, text: str) -> Iterator[str | TextTranslation]:
        options = default_options(self._request, 1)
        arguments: ScoreArguments = {**self._arguments, "retries": self._client.retries}
        try:
            with self._client.client.translate_stream(text, options=options, **arguments) as stream:
                yield from stream
                yield _result(stream.translation)
            self._client.succeeded()
        except InvalidArgumentError as error:
            if any(INPUT_FIELD.fullmatch(violation.field) for violation in error.violations):
                raise InputError(0, input_problem(error)) from error
            raise

    def score(self, pairs: Sequence[tuple[str, str]]) -> list[PairScore | InputError]:
        scores = self._client.run("score_translations", pairs, **self._arguments)
        return [
            score if isinstance(score, InputError) else PairScore(score.log_probability, score.token_log_probabilities)
            for score in scores
        ]


def _result(translation: Translation) -> TextTranslation:
    candidates = [
        Candidate(each.text, each.finish_reason.value, each.token_count, each.score, each.alignment or None, each.spans)
        for each in translation.hypotheses
    ]
    return TextTranslation(candidates, translation.source_token_count, translation.source_spans)
