"""The client for asyncio."""

import asyncio
from collections.abc import Sequence
from types import TracebackType
from typing import Self, Unpack

from google.protobuf.wrappers_pb2 import StringValue

from triptych.v1 import model_pb2
from triptych_client import health
from triptych_client.arguments import CallArguments, DocumentArguments, ScoreArguments, TranslateArguments
from triptych_client.async_document_stream import send_document
from triptych_client.async_image_calls import AsyncImageCalls
from triptych_client.async_sending import send
from triptych_client.async_stream import AsyncTranslationStream
from triptych_client.async_text_calls import AsyncTextCalls
from triptych_client.codec import model_from
from triptych_client.document_flow import DocumentFlow, OnProgress
from triptych_client.document_results import TranslatedDocument
from triptych_client.document_source import DocumentSource, DocumentTarget, write_document
from triptych_client.results import Model, Results, Translation, Translations, TranslationScore
from triptych_client.score_job import ScoreJob
from triptych_client.translate_job import TranslateJob


class AsyncClient(AsyncTextCalls, AsyncImageCalls):
    """Client for asyncio; it belongs to the event loop of its first call.

        async with AsyncClient("localhost:8001") as client:
            print((await client.translate("Guten Morgen!", target_language="en")).text)

    The methods are those of Client, with the same arguments, results and errors. Cancelling a task cancels its request.
    """

    async def translate(self, text: str, **arguments: Unpack[TranslateArguments]) -> Translation:
        """Translate one text. Arguments and errors are those of `Client.translate`."""
        return (await self.translate_many([text], **arguments))[0]

    async def translate_many(self, texts: Sequence[str], **arguments: Unpack[TranslateArguments]) -> Translations:
        """Translate many texts; the result has their order. Arguments and errors are those of `Client.translate_many`."""
        job = TranslateJob(texts=texts, **self._with_call(arguments))
        return Translations.of(await self._ask(self._connection.translation.Translate, job))

    def translate_stream(self, text: str, **arguments: Unpack[TranslateArguments]) -> AsyncTranslationStream:
        """Translate one text, and get it piece by piece while it is decoded.

            async with client.translate_stream("Guten Morgen!", target_language="en") as stream:
                async for piece in stream:
                    print(piece, end="", flush=True)
            print(stream.translation.finish_reason)

        Arguments and errors are those of `Client.translate_stream`.
        """
        job = TranslateJob(texts=[text], **self._with_call(arguments))
        return AsyncTranslationStream(self._connection.translation.TranslateStream, job)

    async def translate_document(
        self,
        source: DocumentSource,
        *,
        target: DocumentTarget | None = None,
        progress: OnProgress | None = None,
        **arguments: Unpack[DocumentArguments],
    ) -> TranslatedDocument:
        """Translate a document; its structure stays as it is. Arguments and errors are those of `Client.translate_document`.

        Files are read and written in a thread; `progress` is called in the event loop.
        """
        job = await asyncio.to_thread(self._document_job, source, arguments)
        document = await send_document(self._connection.translation.TranslateDocument, DocumentFlow(job, progress))
        await asyncio.to_thread(write_document, target, document.content)
        return document

    async def score_translations(
        self, pairs: Sequence[tuple[str, str]], **arguments: Unpack[ScoreArguments]
    ) -> Results[TranslationScore]:
        """How likely a model finds given translations. Arguments and errors are those of `Client.score_translations`."""
        job = ScoreJob(pairs=pairs, **self._with_call(arguments))
        return await self._ask(self._connection.translation.ScoreTranslations, job)

    async def models(self, **arguments: Unpack[CallArguments]) -> list[Model]:
        """Every version of every model of the server, by name, then version. Raises TriptychClientError."""
        response = await send(self._connection.models.ListModels, model_pb2.ListModelsRequest(), self._call(**arguments))
        return [model_from(model) for model in response.models]

    async def model(self, name: str, version: str = "", **arguments: Unpack[CallArguments]) -> Model:
        """One model, as `Client.model` chooses it. Raises NotFoundError, TriptychClientError."""
        request = model_pb2.GetModelRequest(name=name, version=version)
        return model_from((await send(self._connection.models.GetModel, request, self._call(**arguments))).model)

    async def load_model(self, name: str, version: str = "", **arguments: Unpack[CallArguments]) -> list[Model]:
        """Have the server load a version of its repository. Arguments and errors are those of `Client.load_model`."""
        request = model_pb2.LoadModelRequest(name=name, version=version)
        response = await send(self._connection.models.LoadModel, request, self._call(**arguments))
        return [model_from(model) for model in response.models]

    async def unload_model(self, name: str, version: str = "", **arguments: Unpack[CallArguments]) -> None:
        """Have the server unload a version, or all of a model. Arguments and errors are those of `Client.unload_model`."""
        request = model_pb2.UnloadModelRequest(name=name, version=version)
        await send(self._connection.models.UnloadModel, request, self._call(**arguments))

    async def is_ready(self, service: str = "", *, timeout_seconds: float = health.TIMEOUT_SECONDS) -> bool:
        """Whether the server answers and serves. Arguments and errors are those of `Client.is_ready`."""
        call = health.check_call(timeout_seconds)
        try:
            return health.is_serving(await send(self._connection.check_health, StringValue(value=service), call))
        except health.NOT_READY:
            return False

    async def close(self) -> None:
        """Close the connection; what is still under way is cancelled. The client cannot be used any more."""
        await self._connection.channel.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
