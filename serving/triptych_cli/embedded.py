"""An engine in this process."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from triptych_cli.backend import EMBEDDED_CALL, BackendError, Request, TextError, Translated
from triptych_serving.errors import InvalidInputError, ServingError
from triptych_serving.options import DecodingOptions
from triptych_serving.registry import Registry, Wish, load_registry
from triptych_serving.row import Finish
from triptych_serving.translator import Output, Translator, TranslatorOptions


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
        self._options = DecodingOptions(max_length=request.max_length)

    def __enter__(self) -> Self:
        request = self._request
        wish = Wish(request.model, "", request.source_language, request.target_language)
        with _as_backend_errors():
            options = TranslatorOptions(precision=request.precision)
            self._registry: Registry = load_registry(self._repository, options, request.model)
            faults = [loaded.fault for loaded in self._registry.models if loaded.fault]
            if faults and not self._registry.translators:
                raise BackendError("; ".join(faults))
            self._translator: Translator = self._registry.find(wish)
        return self

    def __exit__(self, *details: object) -> None:
        self._registry.close(drain=False)

    def translate(self, texts: Sequence[str]) -> list[Translated]:
        with _as_backend_errors():
            return [_translated(output) for output in self._translator.translate(texts, self._options)]

    def stream(self, text: str) -> Iterator[str | Translated]:
        with _as_backend_errors():
            for event in self._translator.stream(text, self._options):
                yield _translated(event) if isinstance(event, Output) else event


def _translated(output: Output) -> Translated:
    return Translated(output.text, output.finish is Finish.LENGTH)


@contextmanager
def _as_backend_errors() -> Iterator[None]:
    try:
        yield
    except InvalidInputError as error:
        match = re.fullmatch(r"contents\[(\d+)\]", error.field)
        raise TextError(int(match[1]), error.problem) if match else BackendError(str(error)) from error
    except ServingError as error:
        raise BackendError(str(error)) from error
