"""The two backends that translate: an engine in this process, or a server."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from triptych.decoding import DecodingOptions
from triptych_cli.common.connection import PatientClient, input_problem, translation_arguments
from triptych_cli.common.engine import open_engine
from triptych_cli.common.errors import one_line
from triptych_cli.common.lines import run_each
from triptych_cli.common.options import asks_server
from triptych_embedded.request import INPUT_FIELD, InputError, TranslationRequest

if TYPE_CHECKING:
    from triptych_client.arguments import ScoreArguments
    from triptych_serving.models.translation.translator import TranslationModel

LENGTH, TRANSLATION = "length", "translation"  # a finish reason, a capability

Input = TypeVar("Input")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Candidate:
    """One translation of a text."""

    text: str
    finish_reason: str  # "stop" or "length"
    token_count: int
    score: float | None = None
    alignment: Sequence[Sequence[float]] | None = None  # for each target token its attention over the source tokens
    spans: Sequence[tuple[int, int]] = ()  # of the tokens in `text`, in code points; only with an alignment


@dataclass(frozen=True)
class TextTranslation:
    """The translations of one text, best first; at least one."""

    candidates: Sequence[Candidate]
    source_token_count: int
    source_spans: Sequence[tuple[int, int]] = ()  # of the source tokens, empty for ends of sentences; only with an alignment

    @property
    def text(self) -> str:
        """The best translation."""
        return self.candidates[0].text

    @property
    def truncated(self) -> bool:
        """The best translation reached a length limit."""
        return self.candidates[0].finish_reason == LENGTH


class RemoteBackend:
    """Translates and scores texts with a server, in order; a bad input has an InputError in place of its result."""

    batch = 256  # texts to pass to one call: the client sends four requests at once; as fast as 1,024, and less is lost

    def __init__(self, client: PatientClient, request: TranslationRequest) -> None:
        self._client, self._request = client, request
        self._arguments = translation_arguments(request)

    def translate(self, texts: Sequence[str], options: DecodingOptions | None = None) -> list[TextTranslation | InputError]:
        """Translate texts, by default with the options of the command."""
        options = options or _default_options(self._request, len(texts))
        found = self._client.run("translate_many", texts, options=options, **self._arguments)
        return [each if isinstance(each, InputError) else _result(each) for each in found]

    def stream(self, text: str) -> Iterator[str | TextTranslation]:
        """Yield pieces of the translation, then the whole. Raises InputError: the text is bad."""
        from triptych_client import InvalidArgumentError

        options = _default_options(self._request, 1)
        arguments: ScoreArguments = {**self._arguments, "retries": self._client.retries}
        try:
            with one_line(ValueError), self._client.client.translate_stream(text, options=options, **arguments) as stream:
                yield from stream
                yield _result(stream.translation)
            self._client.succeeded()
        except InvalidArgumentError as error:
            fields = [violation.field for violation in error.violations]
            if "contents" in fields or any(map(INPUT_FIELD.fullmatch, fields)):  # the first: too much for one request
                raise InputError(0, input_problem(error)) from error
            raise

    def target_language(self) -> str:
        """Return the language that is translated into: the request's, or the only one that fitting models have; else ""."""
        request = self._request
        if request.target_language:
            return request.target_language
        models = [model for model in self._client.client.models() if model.name == request.model or not request.model]
        offered = {language for model in models for language in model.target_languages}
        return offered.pop() if len(offered) == 1 else ""

    def score(self, pairs: Sequence[tuple[str, str]]) -> list[Any]:
        """Score pairs of source and translation: results of the engine or of the client, which have the same members."""
        return self._client.run("score_translations", pairs, **self._arguments)


class EmbeddedBackend:
    """Translate as RemoteBackend does, with an engine in this process."""

    batch = 256  # as fast as 1,024; progress and unfinished files lose less

    def __init__(self, translator: "TranslationModel[Any]", request: TranslationRequest) -> None:
        self._translator, self._request = translator, request
        self._languages = request.source_language, request.target_language

    def translate(self, texts: Sequence[str], options: DecodingOptions | None = None) -> list[TextTranslation | InputError]:
        def run(some: Sequence[str]) -> list[TextTranslation]:
            chosen = options or _default_options(self._request, len(some))
            return [_result(output) for output in self._translator.translate(some, chosen, *self._languages)]

        return _run_each(run, texts)

    def stream(self, text: str) -> Iterator[str | TextTranslation]:
        from triptych_embedded.models import backend_errors

        with backend_errors():
            for event in self._translator.stream(text, _default_options(self._request, 1), *self._languages):
                yield event if isinstance(event, str) else _result(event)

    def target_language(self) -> str:
        return self._request.target_language or self._translator.manifest.target_languages[0]

    def score(self, pairs: Sequence[tuple[str, str]]) -> list[Any]:
        return _run_each(lambda some: self._translator.score(some, *self._languages), pairs)


Backend = RemoteBackend | EmbeddedBackend


@contextmanager
def open_backend(request: TranslationRequest) -> Iterator[Backend]:
    """Open a server's client if the command is for one, else load an engine in this process.

    Raises:
        click.ClickException: options contradict each other, or an extra is missing.
        BackendError: no model can be loaded.
    """
    if asks_server():
        with PatientClient(request.server) as client:
            yield RemoteBackend(client, request)
        return
    with open_engine(request, TRANSLATION) as (registry, selector):
        yield EmbeddedBackend(registry.find(selector), request)


def _run_each(run: Callable[[Sequence[Input]], Sequence[Result]], inputs: Sequence[Input]) -> list[Result | InputError]:
    """Run all inputs in the engine; one that is bad has an error."""
    from triptych_embedded.models import backend_errors

    return run_each(backend_errors()(run), inputs)


def _default_options(request: TranslationRequest, count: int) -> DecodingOptions:
    """Return the options of a request for `count` texts, each with the same prefix."""
    return replace(request.decoding, target_prefix=request.decoding.target_prefix * count)


def _result(found: Any) -> TextTranslation:
    """Convert a translation of the engine or of the client."""

    def candidate(each: Any) -> Candidate:
        reason = each.finish_reason if hasattr(each, "finish_reason") else each.finish
        alignment = each.alignment.tolist() if hasattr(each.alignment, "tolist") else each.alignment
        return Candidate(each.text, reason.value, each.token_count, each.score, alignment or None, each.spans)

    return TextTranslation(list(map(candidate, found.hypotheses)), found.source_token_count, found.source_spans)
