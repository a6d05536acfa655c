"""A server's client."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Self

from triptych_cli.common.connection import connect
from triptych_client import (
    DecodingOptions,
    Hypothesis,
    InvalidArgumentError,
    SplitSentences,
    Translation,
    TriptychClientError,
)
from triptych_client.arguments import ScoreArguments
from triptych_embedded.request import FIELD, BackendError, Candidate, InputError, Request, Scored, Translated

CALL = 1_024  # texts handed to the client at once; it cuts them into requests


class RemoteBackend:
    """Asks the server at `request.server`."""

    batch = CALL

    def __init__(self, request: Request) -> None:
        self._client = connect(request.server)
        self._arguments: ScoreArguments = {
            "model": request.model or None,
            "source_language": request.source_language or None,
            "target_language": request.target_language or None,
        }
        self._decoding = request.decoding

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *details: object) -> None:
        self._client.close()

    def translate(self, texts: Sequence[str]) -> list[Translated]:
        with as_backend_errors():
            found = self._client.translate_many(texts, options=self._options(len(texts)), **self._arguments)
        return [_translated(translation) for translation in found]

    def stream(self, text: str) -> Iterator[str | Translated]:
        options = self._options(1)
        with as_backend_errors(), self._client.translate_stream(text, options=options, **self._arguments) as stream:
            yield from stream
            yield _translated(stream.translation)

    def score(self, pairs: Sequence[tuple[str, str]]) -> list[Scored]:
        with as_backend_errors():
            scores = self._client.score_translations(pairs, **self._arguments)
        return [Scored(score.log_probability, score.token_log_probabilities) for score in scores]

    def _options(self, texts: int) -> DecodingOptions:
        split = SplitSentences(self._decoding.split_sentences) if self._decoding.split_sentences else None
        return DecodingOptions(**self._decoding.values(texts), split_sentences=split)


def _translated(translation: Translation) -> Translated:
    candidates = [_candidate(hypothesis) for hypothesis in translation.hypotheses]
    return Translated(candidates, translation.source_token_count, translation.source_spans)


def _candidate(hypothesis: Hypothesis) -> Candidate:
    return Candidate(
        hypothesis.text,
        hypothesis.finish_reason.value,
        hypothesis.token_count,
        hypothesis.score,
        hypothesis.alignment or None,
        hypothesis.spans,
    )


@contextmanager
def as_backend_errors() -> Iterator[None]:
    try:
        yield
    except InvalidArgumentError as error:
        for violation in error.violations:
            if match := FIELD.fullmatch(violation.field):
                raise InputError(int(match[1]), violation.description) from error
        raise BackendError(str(error)) from error
    except TriptychClientError as error:
        raise BackendError(str(error)) from error
