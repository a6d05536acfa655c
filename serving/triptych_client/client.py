"""The client for ordinary, blocking code."""

from collections.abc import Sequence
from types import TracebackType
from typing import Self, Unpack

from google.protobuf.wrappers_pb2 import StringValue

from triptych.v1 import model_pb2
from triptych_client import health
from triptych_client.arguments import CallArguments, DocumentArguments, ScoreArguments, TranslateArguments
from triptych_client.codec import model_from
from triptych_client.document_flow import DocumentFlow, OnProgress
from triptych_client.document_results import TranslatedDocument
from triptych_client.document_source import DocumentSource, DocumentTarget, write_document
from triptych_client.document_stream import send_document
from triptych_client.image_calls import ImageCalls
from triptych_client.results import Model, Results, Translation, Translations, TranslationScore
from triptych_client.score_job import ScoreJob
from triptych_client.sending import send
from triptych_client.stream import TranslationStream
from triptych_client.text_calls import TextCalls
from triptych_client.translate_job import TranslateJob


class Client(TextCalls, ImageCalls):
    """A connection to a Triptych server. Threads may share it.

        with Client("localhost:8001") as client:
            print(client.translate("Guten Morgen!", target_language="en").text)

    Every call has a deadline. A request that finds the server unavailable, or its queue full, is sent again after a growing
    pause, as long as the deadline allows. What a call can raise is in `triptych_client.errors`.
    """

    def translate(self, text: str, **arguments: Unpack[TranslateArguments]) -> Translation:
        """Translate one text.

        Args:
            text: What to translate: a sentence, or a text of any number of sentences and paragraphs.
            arguments: `target_language`, `source_language`, `model`, `model_version`, `options` (a DecodingOptions),
                `timeout_seconds` and `request_id`; all optional, explained in `triptych_client.arguments`.

        Raises:
            InvalidArgumentError: The text is empty, a sentence is longer than the model allows, or an option is out of range.
            NotFoundError: No such model, version or pair of languages.
            FailedPreconditionError: The model cannot do what an option asks for.
            TriptychClientError: Base of these and of all other failures.
        """
        return self.translate_many([text], **arguments)[0]

    def translate_many(self, texts: Sequence[str], **arguments: Unpack[TranslateArguments]) -> Translations:
        """Translate many texts; the result has their order.

        A long list is sent as several requests, some at once (`texts_per_call` and `concurrency` of the client), each with
        its own `timeout_seconds`. If one of them fails, the others are cancelled.

        Args:
            texts: What to translate. For none, no request is sent.
            arguments: As for `translate`. `options.target_prefix` has a prefix for each text, or none at all.

        Raises:
            TriptychClientError: As for `translate`.
        """
        job = TranslateJob(texts=texts, **self._with_call(arguments))
        return Translations.of(self._ask(self._connection.translation.Translate, job))

    def translate_stream(self, text: str, **arguments: Unpack[TranslateArguments]) -> TranslationStream:
        """Translate one text, and get it piece by piece while it is decoded.

            with client.translate_stream("Guten Morgen!", target_language="en") as stream:
                for piece in stream:
                    print(piece, end="", flush=True)
            print(stream.translation.finish_reason)

        Args:
            text: What to translate.
            arguments: As for `translate`. `timeout_seconds` is for the whole stream.

        Raises:
            TriptychClientError: As for `translate`, while the pieces are iterated over.
        """
        job = TranslateJob(texts=[text], **self._with_call(arguments))
        return TranslationStream(self._connection.translation.TranslateStream, job)

    def translate_document(
        self,
        source: DocumentSource,
        *,
        target: DocumentTarget | None = None,
        progress: OnProgress | None = None,
        **arguments: Unpack[DocumentArguments],
    ) -> TranslatedDocument:
        """Translate a document; its structure stays as it is.

            document = client.translate_document("report.docx", target="bericht.docx", target_language="de")
            for finding in document.findings:
                print(finding.where, finding.message)

        A segment that cannot be translated stays in its language, and has a finding. The document is sent again after a failure
        as long as work on it has not begun.

        Args:
            source: The document: its path, its bytes, or the file itself, opened in binary mode. All of it is read first.
            target: Where the translation is written to as well, if anywhere.
            progress: Called now and then, in this thread, with a DocumentProgress; what it raises cancels the translation.
            arguments: As for `translate`, and how the document is read; explained in
                `triptych_client.arguments.DocumentArguments`.

        Raises:
            OSError: The source cannot be read, or the target not written.
            InvalidArgumentError: The format is not known, the document damaged or too large, or an option does not go with it.
            ResourceExhaustedError: The server has as many documents as it takes at a time.
            TriptychClientError: As for `translate`.
        """
        flow = DocumentFlow(self._document_job(source, arguments), progress)
        document = send_document(self._connection.translation.TranslateDocument, flow)
        write_document(target, document.content)
        return document

    def score_translations(
        self, pairs: Sequence[tuple[str, str]], **arguments: Unpack[ScoreArguments]
    ) -> Results[TranslationScore]:
        """How likely a model finds given translations; the result has the pairs' order.

            scores = client.score_translations([("Guten Morgen!", "Good morning!"), ("Guten Morgen!", "Good night!")])
            print([score.log_probability for score in scores])

        A long list is sent as several requests, as with `translate_many`.

        Args:
            pairs: Sources, each with its translation. Neither is split into sentences.
            arguments: `target_language`, `source_language`, `model`, `model_version`, `timeout_seconds` and `request_id`.

        Raises:
            InvalidArgumentError: A text is empty or longer than the model allows.
            FailedPreconditionError: The model was exported without what this needs.
            TriptychClientError: As for `translate`.
        """
        job = ScoreJob(pairs=pairs, **self._with_call(arguments))
        return self._ask(self._connection.translation.ScoreTranslations, job)

    def models(self, **arguments: Unpack[CallArguments]) -> list[Model]:
        """Every version of every model of the server, loaded or not, by name, then version.

        Args:
            arguments: `timeout_seconds` and `request_id`, as for `translate`.

        Raises:
            TriptychClientError: The call failed.
        """
        response = send(self._connection.models.ListModels, model_pb2.ListModelsRequest(), self._call(**arguments))
        return [model_from(model) for model in response.models]

    def model(self, name: str, version: str = "", **arguments: Unpack[CallArguments]) -> Model:
        """One model; without `version` the one that requests get which name none.

        Raises:
            NotFoundError: No such model or version.
            TriptychClientError: The call failed.
        """
        request = model_pb2.GetModelRequest(name=name, version=version)
        return model_from(send(self._connection.models.GetModel, request, self._call(**arguments)).model)

    def load_model(self, name: str, version: str = "", **arguments: Unpack[CallArguments]) -> list[Model]:
        """Have the server load a version of its repository, again where its files have changed; returns once it serves.

        Args:
            name: The model's.
            version: A number, or a label such as "canary"; other versions stay as they are. Without, the server loads what the
                model's version policy says, the newest unless the repository says otherwise, and then unloads the others.
            arguments: `timeout_seconds` and `request_id`; loading goes on where the time is over.

        Raises:
            NotFoundError: The repository has no such model or version.
            FailedPreconditionError: It cannot be served (what is loaded serves on), or the server loads nothing on request.
            TriptychClientError: Base of these and of all other failures.
        """
        request = model_pb2.LoadModelRequest(name=name, version=version)
        response = send(self._connection.models.LoadModel, request, self._call(**arguments))
        return [model_from(model) for model in response.models]

    def unload_model(self, name: str, version: str = "", **arguments: Unpack[CallArguments]) -> None:
        """Have the server unload a version, or all of a model; returns once the requests that ran on it have ended.

        Raises:
            NotFoundError: No such version is loaded.
            FailedPreconditionError: The server's models are not unloaded on request.
            TriptychClientError: Base of these and of all other failures.
        """
        request = model_pb2.UnloadModelRequest(name=name, version=version)
        send(self._connection.models.UnloadModel, request, self._call(**arguments))

    def is_ready(self, service: str = "", *, timeout_seconds: float = health.TIMEOUT_SECONDS) -> bool:
        """Whether the server answers and serves; asked once, without retries.

        Args:
            service: Such as "triptych.v1.TranslationService"; empty is the server as a whole.
            timeout_seconds: No answer within this time is False.

        Raises:
            NotFoundError: The server has no such service.
            TriptychClientError: Any failure but that the server is unavailable or slow.
        """
        call = health.check_call(timeout_seconds)
        try:
            return health.is_serving(send(self._connection.check_health, StringValue(value=service), call))
        except health.NOT_READY:
            return False

    def close(self) -> None:
        """Close the connection; what is still under way is cancelled. The client cannot be used any more."""
        self._connection.channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
