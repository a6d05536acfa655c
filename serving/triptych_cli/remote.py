"""A server's client."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Self

from triptych_cli.backend import FIELD, BackendError, InputError, Request, Translated
from triptych_client import Client, DecodingOptions, FinishReason, InvalidArgumentError, Translation, TriptychClientError
from triptych_client.arguments import TranslateArguments

CALL = 1_024  # texts handed to the client at once; it cuts them into requests


class RemoteBackend:
    """Asks the server at `request.server`."""

    batch = CALL

    def __init__(self, request: Request) -> None:
        self._client = Client(request.server)
        self._arguments: TranslateArguments = {
            "model": request.model or None,
            "source_language": request.source_language or None,
            "target_language": request.target_language or None,
            "options": DecodingOptions(max_length=request.max_length),
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *details: object) -> None:
        self._client.close()

    def translate(self, texts: Sequence[str]) -> list[Translated]:
        with as_backend_errors():
            return [_translated(translation) for translation in self._client.translate_many(texts, **self._arguments)]

    def stream(self, text: str) -> Iterator[str | Translated]:
        with as_backend_errors(), self._client.translate_stream(text, **self._arguments) as stream:
            yield from stream
            yield _translated(stream.translation)


def _translated(translation: Translation) -> Translated:
    return Translated(translation.text, translation.hypotheses[0].finish_reason is FinishReason.LENGTH)


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
