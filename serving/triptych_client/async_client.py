"""The client for asyncio."""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, Self, TypeVar, Unpack, overload
from weakref import WeakSet

import grpc

from triptych_client import arguments as named
from triptych_client import results, tasks, text_tasks
from triptych_client.base import HEALTH_TIMEOUT_SECONDS, BaseClient, health_call
from triptych_client.connection import open_async_channel
from triptych_client.documents import OnProgress, send_document_async
from triptych_client.errors import DeadlineExceededError, UnavailableError
from triptych_client.files import DocumentSource, DocumentTarget, ImageSource, check_images, read_image, write_document
from triptych_client.generation import GENERATE, Generation, Prompt
from triptych_client.images import Images, stream_images_async
from triptych_client.results import Model, Results, Translation, Translations, TranslationScore
from triptych_client.tasks import SimpleCall, Texts, UnaryTask
from triptych_client.tensors import INFER, Tensor, infer_request
from triptych_client.translation_stream import AsyncGenerationStream, AsyncTranslationStream
from triptych_client.unary import send_all_async, send_async

Result = TypeVar("Result")


class AsyncClient(BaseClient):
    """Client for asyncio. It belongs to the event loop of its first call.

        async with AsyncClient("localhost:8001") as client:
            print((await client.translate("Good morning!", target_language="de")).text)

    The methods are those of Client, with the same arguments, results and errors. Cancelling a task cancels its request.
    """

    def _open(self) -> None:
        self._running: WeakSet[Any] = WeakSet()

    @cached_property
    def _own(self) -> tuple[asyncio.AbstractEventLoop, grpc.aio.Channel]:
        # Made at the first call: a client may be constructed before its event loop runs.
        return asyncio.get_running_loop(), open_async_channel(self._settings)

    @property
    def _channel(self) -> grpc.aio.Channel:
        loop, channel = self._own
        if loop is not asyncio.get_running_loop():
            raise RuntimeError(
                "the client belongs to the event loop of its first call, and this is another one: make a new client"
            )
        return channel

    async def _send(
        self, method: SimpleCall[Any, Any, Result], fields: Mapping[str, Any], arguments: Mapping[str, Any]
    ) -> Result:
        prepare = partial(self._simple_request, method, fields, arguments)
        reads = {"image", "images"} & (fields.keys() | arguments.keys())
        request, call = await asyncio.to_thread(prepare) if reads else prepare()
        return method.result(await send_async(self._channel, method, request, call))

    async def _run(
        self, task: UnaryTask[Result], inputs: Sequence[Any], arguments: Mapping[str, Any], fail_fast: bool = False
    ) -> Results[Result]:
        batch = self._batch(task, inputs, arguments, fail_fast)
        return batch.results(await send_all_async(self._channel, batch.requests, self._settings.concurrency))

    async def _one(self, task: UnaryTask[Result], each: Any, arguments: Mapping[str, Any]) -> Result:
        return (await self._run(task, [each], arguments, fail_fast=True))[0]

    @overload
    async def translate(self, text: str, **arguments: Unpack[named.TextsArguments]) -> Translation: ...

    @overload
    async def translate(self, text: Texts, **arguments: Unpack[named.TextsArguments]) -> Translations: ...

    async def translate(self, text: str | Texts, **arguments: Unpack[named.TextsArguments]) -> Translation | Translations:
        """Translate one text, or a list of texts. See `Client.translate`."""
        if isinstance(text, list | tuple):
            return await self.translate_many(text, **arguments)
        return await self._one(tasks.TRANSLATE, text, arguments)

    async def translate_many(
        self, texts: Sequence[str], *, fail_fast: bool = False, **arguments: Unpack[named.TextsArguments]
    ) -> Translations:
        """Translate many texts; the result has their order. See `Client.translate_many`."""
        return Translations.of(await self._run(tasks.TRANSLATE, texts, arguments, fail_fast))

    def translate_stream(self, text: str, **arguments: Unpack[named.TranslateArguments]) -> AsyncTranslationStream:
        """Translate one text and receive it piece by piece while it is decoded.

            async with client.translate_stream("Good morning!", target_language="de") as stream:
                async for piece in stream:
                    print(piece, end="", flush=True)
            print(stream.translation.finish_reason)

        Arguments and errors are those of `Client.translate_stream`.
        """
        return AsyncTranslationStream(self._channel, *self._stream_request(text, arguments))

    async def translate_document(
        self,
        source: DocumentSource,
        *,
        target: DocumentTarget | None = None,
        progress: OnProgress | None = None,
        **arguments: Unpack[named.DocumentArguments],
    ) -> results.TranslatedDocument:
        """Translate a document and keep its structure. See `Client.translate_document`.

        Files are read and written in a thread; `progress` is called in the event loop.
        """
        exchange = await asyncio.to_thread(self._document, source, target, progress, arguments)
        document = await send_document_async(self._channel, exchange)
        await asyncio.to_thread(write_document, target, document.content)
        return document

    async def score_translations(
        self, pairs: Sequence[tuple[str, str]], *, fail_fast: bool = False, **arguments: Unpack[named.ScoreArguments]
    ) -> Results[TranslationScore]:
        """Score given translations by their likelihood. See `Client.score_translations`."""
        return await self._run(tasks.SCORE_TRANSLATIONS, pairs, arguments, fail_fast)

    async def fill_mask(self, text: str, **arguments: Unpack[named.FillMaskArguments]) -> text_tasks.FilledText:
        """Rank candidates for each mask of a text. See `Client.fill_mask`."""
        return await self._one(text_tasks.FILL_MASK, text, arguments)

    async def fill_mask_many(
        self, texts: Sequence[str], *, fail_fast: bool = False, **arguments: Unpack[named.FillMaskArguments]
    ) -> Results[text_tasks.FilledText]:
        """Apply `fill_mask` to many texts."""
        return await self._run(text_tasks.FILL_MASK, texts, arguments, fail_fast)

    async def embed(self, text: str, **arguments: Unpack[named.EmbedArguments]) -> text_tasks.Embedding:
        """Convert a text to a vector. See `Client.embed`."""
        return await self._one(text_tasks.EMBED, text, arguments)

    async def embed_many(
        self, texts: Sequence[str], *, fail_fast: bool = False, **arguments: Unpack[named.EmbedArguments]
    ) -> Results[text_tasks.Embedding]:
        """Apply `embed` to many texts."""
        return await self._run(text_tasks.EMBED, texts, arguments, fail_fast)

    async def classify_text(
        self, text: text_tasks.TextOrPair, **arguments: Unpack[named.ClassifyTextArguments]
    ) -> text_tasks.ClassifiedText:
        """Rank the model's labels for a text, or for a pair of texts. See `Client.classify_text`."""
        return await self._one(text_tasks.CLASSIFY_TEXT, text, arguments)

    async def classify_text_many(
        self,
        inputs: Sequence[text_tasks.TextOrPair],
        *,
        fail_fast: bool = False,
        **arguments: Unpack[named.ClassifyTextArguments],
    ) -> Results[text_tasks.ClassifiedText]:
        """Apply `classify_text` to many texts or pairs."""
        return await self._run(text_tasks.CLASSIFY_TEXT, inputs, arguments, fail_fast)

    async def classify_tokens(self, text: str, **arguments: Unpack[named.ClassifyTokensArguments]) -> text_tasks.LabelledText:
        """Find the entities of a text, such as names of people and places. See `Client.classify_tokens`."""
        return await self._one(text_tasks.CLASSIFY_TOKENS, text, arguments)

    async def classify_tokens_many(
        self, texts: Sequence[str], *, fail_fast: bool = False, **arguments: Unpack[named.ClassifyTokensArguments]
    ) -> Results[text_tasks.LabelledText]:
        """Apply `classify_tokens` to many texts."""
        return await self._run(text_tasks.CLASSIFY_TOKENS, texts, arguments, fail_fast)

    async def answer(
        self, question: str, context: str, **arguments: Unpack[named.AnswerArguments]
    ) -> text_tasks.AnsweredQuestion:
        """Find the answer to a question in a text. See `Client.answer`."""
        return await self._one(text_tasks.ANSWER, (question, context), arguments)

    async def answer_many(
        self, pairs: Sequence[tuple[str, str]], *, fail_fast: bool = False, **arguments: Unpack[named.AnswerArguments]
    ) -> Results[text_tasks.AnsweredQuestion]:
        """Apply `answer` to many pairs of question and context."""
        return await self._run(text_tasks.ANSWER, pairs, arguments, fail_fast)

    async def rerank(
        self, query: str, documents: Sequence[str], **arguments: Unpack[named.RerankArguments]
    ) -> list[text_tasks.RankedDocument]:
        """Rank documents by their relevance to a query; the best one comes first. See `Client.rerank`."""
        request, call = self._rerank_request(query, documents, arguments)
        return text_tasks.RERANK.parse(await send_async(self._channel, text_tasks.RERANK, request, call), call.request_id)

    async def neighbors(self, query: str, **arguments: Unpack[named.NeighborsArguments]) -> text_tasks.NearestWords:
        """Find the words most similar to a sum of words. See `Client.neighbors`."""
        return await self._one(text_tasks.NEIGHBORS, query, arguments)

    async def neighbors_many(
        self, queries: Sequence[str], *, fail_fast: bool = False, **arguments: Unpack[named.NeighborsArguments]
    ) -> Results[text_tasks.NearestWords]:
        """Apply `neighbors` to many queries."""
        return await self._run(text_tasks.NEIGHBORS, queries, arguments, fail_fast)

    async def generate(self, prompt: Prompt, **arguments: Unpack[named.GenerateArguments]) -> Generation:
        """Continue a text, or answer a chat. See `Client.generate`."""
        request, call = self._generate_request(prompt, arguments, streams=False)
        return GENERATE.parse(await send_async(self._channel, GENERATE, request, call), call.request_id)[0]

    async def generate_many(
        self, prompts: Sequence[str], *, fail_fast: bool = False, **arguments: Unpack[named.GenerateArguments]
    ) -> Results[Generation]:
        """Apply `generate` to many texts."""
        return await self._run(GENERATE, prompts, arguments, fail_fast)

    def generate_stream(self, prompt: Prompt, **arguments: Unpack[named.GenerateArguments]) -> AsyncGenerationStream:
        """Generate text and receive it piece by piece. See `Client.generate_stream`."""
        return AsyncGenerationStream(self._channel, *self._generate_request(prompt, arguments, streams=True))

    async def classify_image(
        self, image: ImageSource, **arguments: Unpack[named.ClassifyImageArguments]
    ) -> results.ClassifiedImage:
        """Rank the model's labels for an image. See `Client.classify_image`; the file is read in a thread."""
        return (await self.classify_image_many([image], fail_fast=True, **arguments))[0]

    async def classify_image_many(
        self, images: Sequence[ImageSource], *, fail_fast: bool = False, **arguments: Unpack[named.ClassifyImageArguments]
    ) -> Results[results.ClassifiedImage]:
        """Rank the model's labels for many images; the result has their order. See `Client.classify_image_many`."""
        check_images(images, "classify_image_many")
        contents = await asyncio.to_thread(lambda: [read_image(image) for image in images])
        return await self._run(tasks.CLASSIFY_IMAGE, contents, arguments, fail_fast)

    def classify_images(
        self, images: Images, *, in_flight: int = 16, **arguments: Unpack[named.ClassifyImageArguments]
    ) -> AsyncGenerator[results.ImageOutcome]:
        """Rank the model's labels for a stream of images; yield each outcome as soon as it is known, in any order.

            paths = ["cat.jpg", "dog.jpg"]
            async for outcome in client.classify_images(paths):
                print(paths[outcome.index], outcome.error or outcome.result.labels[0].label)

        See `Client.classify_images`; the images may come from an asynchronous iterable, too. Use `contextlib.aclosing` around a
        loop that may end early: otherwise the remaining images are cancelled only when the generator is collected.
        """
        return stream_images_async(self._channel, images, self._image_exchange(images, in_flight, arguments))

    async def complete_image(
        self, image: ImageSource, **arguments: Unpack[named.CompleteImageArguments]
    ) -> results.ImageCompletion:
        """Complete an image of which the upper part is given. See `Client.complete_image`; the file is read in a thread."""
        return await self._one(tasks.COMPLETE_IMAGE, await asyncio.to_thread(read_image, image), arguments)

    async def generate_images(self, **arguments: Unpack[named.GenerateImagesArguments]) -> results.GeneratedImages:
        """Generate images of random or given latents. See `Client.generate_images`."""
        return await self._send(tasks.GENERATE_IMAGES, {}, arguments)

    async def reconstruct_image(self, image: ImageSource, **arguments: Unpack[named.ModelArguments]) -> results.GeneratedImages:
        """Encode an image and decode it again. See `Client.reconstruct_image`; the file is read in a thread."""
        return await self._send(tasks.RECONSTRUCT_IMAGE, {"images": [image]}, arguments)

    async def interpolate(
        self, first: ImageSource, last: ImageSource, **arguments: Unpack[named.InterpolateArguments]
    ) -> results.GeneratedImages:
        """Generate images between two. See `Client.interpolate`; the files are read in a thread."""
        return await self._send(tasks.INTERPOLATE, {"images": [first, last]}, arguments)

    async def attend(self, text: str = "", **arguments: Unpack[named.AttendArguments]) -> results.Attention:
        """Return the attention weights of every layer and head for one text or image. See `Client.attend`."""
        return await self._send(tasks.ATTEND, {"text": text}, arguments)

    async def models(self, **arguments: Unpack[named.CallArguments]) -> list[Model]:
        """List every version of every model of the server. See `Client.models`."""
        return await self._send(tasks.LIST_MODELS, {}, arguments)

    async def model(self, name: str, version: str = "", **arguments: Unpack[named.CallArguments]) -> Model:
        """Describe one model. See `Client.model`."""
        return await self._send(tasks.GET_MODEL, {"name": name, "version": version}, arguments)

    async def load_model(self, name: str, version: str = "", **arguments: Unpack[named.CallArguments]) -> list[Model]:
        """Load a version from the server's repository. See `Client.load_model`."""
        return await self._send(tasks.LOAD_MODEL, {"name": name, "version": version}, arguments)

    async def unload_model(self, name: str, version: str = "", **arguments: Unpack[named.CallArguments]) -> None:
        """Unload one version, or all versions, of a model. See `Client.unload_model`."""
        await self._send(tasks.UNLOAD_MODEL, {"name": name, "version": version}, arguments)

    async def infer(
        self,
        model: str,
        inputs: Mapping[str, Any],
        version: str = "",
        outputs: Sequence[str] | Mapping[str, int] = (),
        **arguments: Unpack[named.CallArguments],
    ) -> dict[str, Tensor]:
        """Run a model of plain tensors. See `Client.infer`."""
        return await self._send(INFER, infer_request(model, version, inputs, outputs), arguments)

    async def is_ready(self, service: str = "", *, timeout_seconds: float = HEALTH_TIMEOUT_SECONDS) -> bool:
        """Return whether the server is up and serving. See `Client.is_ready`."""
        check = tasks.CHECK_HEALTH
        call = health_call(timeout_seconds)
        try:
            return check.result(await send_async(self._channel, check, check.request(value=service), call))
        except (UnavailableError, DeadlineExceededError):
            return False

    async def close(self) -> None:
        """Close the connection and cancel running requests. The client cannot be used afterwards."""
        for call in list(self._running):  # the channel finds those of unary calls alone
            call.cancel()
        await self._own[1].close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *details: object) -> None:
        await self.close()
