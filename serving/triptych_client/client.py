"""The blocking client."""

from collections.abc import Generator, Iterable, Mapping, Sequence
from typing import Any, Self, TypeVar, Unpack, overload

from triptych_client import arguments as named
from triptych_client import results, tasks, text_tasks
from triptych_client.base import HEALTH_TIMEOUT_SECONDS, BaseClient, health_call
from triptych_client.connection import open_channel
from triptych_client.documents import OnProgress, send_document
from triptych_client.errors import DeadlineExceededError, UnavailableError
from triptych_client.files import DocumentSource, DocumentTarget, ImageSource, check_images, read_image, write_document
from triptych_client.generation import GENERATE, Generation, Prompt
from triptych_client.images import stream_images
from triptych_client.results import Model, Results, Translation, Translations, TranslationScore
from triptych_client.tasks import SimpleCall, Texts, UnaryTask
from triptych_client.tensors import INFER, Tensor, infer_request
from triptych_client.translation_stream import GenerationStream, TranslationStream
from triptych_client.unary import send, send_all

Result = TypeVar("Result")


class Client(BaseClient):
    """A connection to a Triptych server. Threads may share it.

        with Client("localhost:8001") as client:
            print(client.translate("Good morning!", target_language="de").text)

    Every call has a deadline. If the server is unavailable or its queue is full, a request is sent again after a growing pause,
    as long as the deadline allows. The named arguments of all methods are optional; `triptych_client.arguments` explains them.

    Encoder tasks have a method for one input and a method, `..._many`, for a list, whose results have its order. As with
    `translate_many`, a long list is sent as several requests, and an invalid input fails alone unless `fail_fast` is set.

    Each method raises one of these, or as its own docstring says; `triptych_client.errors` lists all exceptions:

        InvalidArgumentError: The model cannot process an input or an option.
        NotFoundError: No such model or version.
        FailedPreconditionError: The model is of another kind.
        TriptychClientError: Base of these and of all other failures.
    """

    def _open(self) -> None:
        self._channel = open_channel(self._settings)

    def _send(self, method: SimpleCall[Any, Any, Result], fields: Mapping[str, Any], arguments: Mapping[str, Any]) -> Result:
        return method.result(send(self._channel, method, *self._simple_request(method, fields, arguments)))

    def _run(
        self, task: UnaryTask[Result], inputs: Sequence[Any], arguments: Mapping[str, Any], fail_fast: bool = False
    ) -> Results[Result]:
        batch = self._batch(task, inputs, arguments, fail_fast)
        return batch.results(send_all(self._channel, batch.requests, self._settings.concurrency))

    def _one(self, task: UnaryTask[Result], each: Any, arguments: Mapping[str, Any]) -> Result:
        return self._run(task, [each], arguments, fail_fast=True)[0]

    @overload
    def translate(self, text: str, **arguments: Unpack[named.TextsArguments]) -> Translation: ...

    @overload
    def translate(self, text: Texts, **arguments: Unpack[named.TextsArguments]) -> Translations: ...

    def translate(self, text: str | Texts, **arguments: Unpack[named.TextsArguments]) -> Translation | Translations:
        """Translate one text, or a list of texts as `translate_many`.

            client.translate("Where is the station?", beam_size=4).text
            client.translate(["Good morning.", "Good night."]).texts

        Args:
            text: A sentence, or a text of sentences and paragraphs: with 4 beams about 4,000 of them by the server's default,
                `--max-decode-tokens`; `translate_document` has no such limit.
            arguments: Of TextsArguments: languages, model, `glossary`, and decoding options such as `beam_size`, or
                `options` (a DecodingOptions).

        Raises:
            InvalidArgumentError: The text is empty, a sentence is longer than the model allows, or an option is out of range.
            NotFoundError: No such model, version or language pair.
            FailedPreconditionError: The model does not support an option.
        """
        if isinstance(text, list | tuple):
            return self.translate_many(text, **arguments)
        return self._one(tasks.TRANSLATE, text, arguments)

    def translate_many(
        self, texts: Sequence[str], *, fail_fast: bool = False, **arguments: Unpack[named.TextsArguments]
    ) -> Translations:
        """Translate many texts; the result has their order.

        A long list is sent as several requests, some of them concurrently (`texts_per_call` and `concurrency` of the client),
        each with its own `timeout_seconds`. If one of them fails, the others are cancelled. A text that is empty or too long
        fails alone: `errors` and `outcomes` of the result have its error, and to take its translation raises it.

        Args:
            texts: The texts. An empty list sends no request.
            fail_fast: Raise the error of the first invalid text at once.
            arguments: As for `translate`. `target_prefix` has a prefix for each text, or none at all.
        """
        return Translations.of(self._run(tasks.TRANSLATE, texts, arguments, fail_fast))

    def translate_stream(self, text: str, **arguments: Unpack[named.TranslateArguments]) -> TranslationStream:
        """Translate one text and receive it piece by piece while it is decoded.

            with client.translate_stream("Good morning!", target_language="de") as stream:
                for piece in stream:
                    print(piece, end="", flush=True)
            print(stream.translation.finish_reason)

        `timeout_seconds` is the deadline of the whole stream. Errors are raised while iterating over the pieces.
        """
        return TranslationStream(self._channel, *self._stream_request(text, arguments))

    def translate_document(
        self,
        source: DocumentSource,
        *,
        target: DocumentTarget | None = None,
        progress: OnProgress | None = None,
        **arguments: Unpack[named.DocumentArguments],
    ) -> results.TranslatedDocument:
        """Translate a document and keep its structure.

            document = client.translate_document("report.docx", target="bericht.docx", target_language="de")
            for finding in document.findings:
                print(finding.where, finding.message)

        A segment that cannot be translated stays as it is and has a finding. After a failure, the document is sent again unless
        the server has begun to translate it.

        Args:
            source: Path or content of the document, or a file opened in binary mode. It is read as a whole.
            target: Path, or file opened in binary mode, to write the translation to; optional.
            progress: Called with a DocumentProgress from time to time, in this thread; an exception cancels the translation.
            arguments: As for `translate`, and how the document is read.

        Raises:
            OSError: The source cannot be read, or the target cannot be written, which is found out before the translation.
            InvalidArgumentError: The format is unknown, the document is damaged or too large, or an option does not apply.
            ResourceExhaustedError: The server is translating its maximum number of documents.
        """
        document = send_document(self._channel, self._document(source, target, progress, arguments))
        write_document(target, document.content)
        return document

    def score_translations(
        self, pairs: Sequence[tuple[str, str]], *, fail_fast: bool = False, **arguments: Unpack[named.ScoreArguments]
    ) -> Results[TranslationScore]:
        """Score given translations by their likelihood; the result has the order of the pairs.

            scores = client.score_translations([("Good morning!", "Guten Morgen!"), ("Good morning!", "Gute Nacht!")])
            print([score.log_probability for score in scores])

        A long list is sent as several requests, as with `translate_many`.

        Args:
            pairs: Sources, each with its translation. Neither is split into sentences.

        Raises:
            InvalidArgumentError: A text is empty or longer than the model allows.
            FailedPreconditionError: The model was exported without support for scores.
        """
        return self._run(tasks.SCORE_TRANSLATIONS, pairs, arguments, fail_fast)

    def fill_mask(self, text: str, **arguments: Unpack[named.FillMaskArguments]) -> text_tasks.FilledText:
        """Rank candidates for each mask of a text.

            filled = client.fill_mask("The capital of France is [MASK].")
            print(filled.masks[0].candidates[0].sequence)

        Masks are written as the model's mask token: "[MASK]", or "<mask>" for RoBERTa.
        """
        return self._one(text_tasks.FILL_MASK, text, arguments)

    def fill_mask_many(
        self, texts: Sequence[str], *, fail_fast: bool = False, **arguments: Unpack[named.FillMaskArguments]
    ) -> Results[text_tasks.FilledText]:
        """Apply `fill_mask` to many texts."""
        return self._run(text_tasks.FILL_MASK, texts, arguments, fail_fast)

    def embed(self, text: str, **arguments: Unpack[named.EmbedArguments]) -> text_tasks.Embedding:
        """Convert a text, a sentence or a paragraph, to a vector."""
        return self._one(text_tasks.EMBED, text, arguments)

    def embed_many(
        self, texts: Sequence[str], *, fail_fast: bool = False, **arguments: Unpack[named.EmbedArguments]
    ) -> Results[text_tasks.Embedding]:
        """Apply `embed` to many texts."""
        return self._run(text_tasks.EMBED, texts, arguments, fail_fast)

    def classify_text(
        self, text: text_tasks.TextOrPair, **arguments: Unpack[named.ClassifyTextArguments]
    ) -> text_tasks.ClassifiedText:
        """Rank the model's labels for a text, or for a tuple of two texts if the model takes pairs."""
        return self._one(text_tasks.CLASSIFY_TEXT, text, arguments)

    def classify_text_many(
        self,
        inputs: Sequence[text_tasks.TextOrPair],
        *,
        fail_fast: bool = False,
        **arguments: Unpack[named.ClassifyTextArguments],
    ) -> Results[text_tasks.ClassifiedText]:
        """Apply `classify_text` to many texts or pairs."""
        return self._run(text_tasks.CLASSIFY_TEXT, inputs, arguments, fail_fast)

    def classify_tokens(self, text: str, **arguments: Unpack[named.ClassifyTokensArguments]) -> text_tasks.LabelledText:
        """Find the entities of a text, such as names of people and places."""
        return self._one(text_tasks.CLASSIFY_TOKENS, text, arguments)

    def classify_tokens_many(
        self, texts: Sequence[str], *, fail_fast: bool = False, **arguments: Unpack[named.ClassifyTokensArguments]
    ) -> Results[text_tasks.LabelledText]:
        """Apply `classify_tokens` to many texts."""
        return self._run(text_tasks.CLASSIFY_TOKENS, texts, arguments, fail_fast)

    def answer(self, question: str, context: str, **arguments: Unpack[named.AnswerArguments]) -> text_tasks.AnsweredQuestion:
        """Find the answer to a question in a text, the context."""
        return self._one(text_tasks.ANSWER, (question, context), arguments)

    def answer_many(
        self, pairs: Sequence[tuple[str, str]], *, fail_fast: bool = False, **arguments: Unpack[named.AnswerArguments]
    ) -> Results[text_tasks.AnsweredQuestion]:
        """Apply `answer` to many pairs of question and context."""
        return self._run(text_tasks.ANSWER, pairs, arguments, fail_fast)

    def rerank(
        self, query: str, documents: Sequence[str], **arguments: Unpack[named.RerankArguments]
    ) -> list[text_tasks.RankedDocument]:
        """Rank documents by their relevance to a query; the best one comes first.

        All documents are sent as one request, and an invalid one fails the call.

        Args:
            query: A question, or words to search for.
            documents: Texts, such as the results of a search.
        """
        request, call = self._rerank_request(query, documents, arguments)
        return text_tasks.RERANK.parse(send(self._channel, text_tasks.RERANK, request, call), call.request_id)

    def neighbors(self, query: str, **arguments: Unpack[named.NeighborsArguments]) -> text_tasks.NearestWords:
        """Find the words most similar to a sum of words, with a table of vectors.

            client.neighbors("king -man +woman", model="words").neighbors[0].token_str

        Words are separated by white space; those with a hyphen before them are subtracted.
        """
        return self._one(text_tasks.NEIGHBORS, query, arguments)

    def neighbors_many(
        self, queries: Sequence[str], *, fail_fast: bool = False, **arguments: Unpack[named.NeighborsArguments]
    ) -> Results[text_tasks.NearestWords]:
        """Apply `neighbors` to many queries."""
        return self._run(text_tasks.NEIGHBORS, queries, arguments, fail_fast)

    def generate(self, prompt: Prompt, **arguments: Unpack[named.GenerateArguments]) -> Generation:
        """Continue a text, or answer a chat.

            client.generate("Once upon a time", max_tokens=50, stop=["."]).text
            client.generate([{"role": "user", "content": "Hello!"}], sampling_topp=0.9, seed=7).text

        Args:
            prompt: A text, or a list of messages with `role` and `content`.
            arguments: Of GenerateArguments: `max_tokens`, `n`, `stop` and others, and decoding options.

        Raises:
            InvalidArgumentError: The prompt is too long for the model's context, or an option is out of range.
            FailedPreconditionError: The model does not generate text, or has no chat template.
        """
        request, call = self._generate_request(prompt, arguments, streams=False)
        return GENERATE.parse(send(self._channel, GENERATE, request, call), call.request_id)[0]

    def generate_many(
        self, prompts: Sequence[str], *, fail_fast: bool = False, **arguments: Unpack[named.GenerateArguments]
    ) -> Results[Generation]:
        """Apply `generate` to many texts."""
        return self._run(GENERATE, prompts, arguments, fail_fast)

    def generate_stream(self, prompt: Prompt, **arguments: Unpack[named.GenerateArguments]) -> GenerationStream:
        """Generate text and receive it piece by piece.

            with client.generate_stream("Once upon a time") as stream:
                for piece in stream:
                    print(piece, end="", flush=True)
            print(stream.generation.finish_reason)

        `timeout_seconds` is the deadline of the whole stream. Errors are raised while iterating over the pieces.
        """
        return GenerationStream(self._channel, *self._generate_request(prompt, arguments, streams=True))

    def classify_image(self, image: ImageSource, **arguments: Unpack[named.ClassifyImageArguments]) -> results.ClassifiedImage:
        """Rank the model's labels for an image.

            print(client.classify_image("cat.jpg").labels[0].label)

        Args:
            image: A JPEG, PNG or WebP file: its path or content, or a file opened in binary mode.

        Raises:
            OSError: The file cannot be read.
            InvalidArgumentError: The server does not support the image, or an option is out of range.
        """
        return self.classify_image_many([image], fail_fast=True, **arguments)[0]

    def classify_image_many(
        self, images: Sequence[ImageSource], *, fail_fast: bool = False, **arguments: Unpack[named.ClassifyImageArguments]
    ) -> Results[results.ClassifiedImage]:
        """Rank the model's labels for many images; the result has their order.

        All images are read first; `classify_images` reads only a few at a time. A long list is sent as several requests, as
        with `translate_many`.
        """
        check_images(images, "classify_image_many")
        return self._run(tasks.CLASSIFY_IMAGE, [read_image(image) for image in images], arguments, fail_fast)

    def classify_images(
        self, images: Iterable[ImageSource], *, in_flight: int = 16, **arguments: Unpack[named.ClassifyImageArguments]
    ) -> Generator[results.ImageOutcome]:
        """Rank the model's labels for a stream of images; yield each outcome as soon as it is known, in any order.

            paths = ["cat.jpg", "dog.jpg"]
            for outcome in client.classify_images(paths):
                print(paths[outcome.index], outcome.error or outcome.result.labels[0].label)

        A bad image has an outcome with an error; the others continue. A broken connection is replaced, and the images in flight
        are sent again. Closing or dropping the generator cancels the images in flight.

        Args:
            images: Read one by one, in the thread that iterates over the outcomes, as far as `in_flight` allows.
            in_flight: Maximum number of images in flight. With 1, each has its outcome before the next one is read.
            arguments: As for `classify_image`. `timeout_seconds` is the longest time without progress: the whole stream may
                take longer.

        Raises:
            ValueError, TypeError: An argument is wrong; raised at once. All other errors are raised during iteration.
            TriptychClientError: The stream as a whole failed.
        """
        return stream_images(self._channel, images, self._image_exchange(images, in_flight, arguments))

    def complete_image(self, image: ImageSource, **arguments: Unpack[named.CompleteImageArguments]) -> results.ImageCompletion:
        """Complete an image of which the upper part is given.

            Path("whole.png").write_bytes(client.complete_image("half.png", sampling_topk=40, seed=7).image)

        Args:
            image: A JPEG, PNG or WebP file: its path or content, or a file opened in binary mode.

        Raises:
            OSError: The file cannot be read.
        """
        return self._one(tasks.COMPLETE_IMAGE, read_image(image), arguments)

    def generate_images(self, **arguments: Unpack[named.GenerateImagesArguments]) -> results.GeneratedImages:
        """Generate images of random or given latents, the numbers that stand for an image in an autoencoder.

            Path("new.png").write_bytes(client.generate_images(seed=7).images[0].image)

        Args:
            arguments: Of GenerateImagesArguments: `count` and `seed`, or `latents`; model.
        """
        return self._send(tasks.GENERATE_IMAGES, {}, arguments)

    def reconstruct_image(self, image: ImageSource, **arguments: Unpack[named.ModelArguments]) -> results.GeneratedImages:
        """Encode an image and decode it again; the result has one image, and its latents.

        Raises:
            OSError: The image cannot be read.
        """
        return self._send(tasks.RECONSTRUCT_IMAGE, {"images": [image]}, arguments)

    def interpolate(
        self, first: ImageSource, last: ImageSource, **arguments: Unpack[named.InterpolateArguments]
    ) -> results.GeneratedImages:
        """Generate images on the line from one image's latents to another's.

        Args:
            first: Its reconstruction is the first image of the result.
            last: Likewise the last.
            arguments: Of InterpolateArguments: `steps`, model.

        Raises:
            OSError: An image cannot be read.
        """
        return self._send(tasks.INTERPOLATE, {"images": [first, last]}, arguments)

    def attend(self, text: str = "", **arguments: Unpack[named.AttendArguments]) -> results.Attention:
        """Return the attention weights of every layer and head for one text or image.

            attention = client.attend("Where is the station?", target_language="de")
            layer, heads = attention.alignment.layer, attention.alignment.heads

        Args:
            text: A sentence, for a translation model, or a named one of the BERT family. Empty with `image`.
            arguments: Of AttendArguments: `target`, `text_pair` or `image`, languages and model.

        Raises:
            OSError: The image cannot be read.
            InvalidArgumentError: The text is empty or too long, or an argument does not apply to the model.
            FailedPreconditionError: The model's bundle has no attention graph.
        """
        return self._send(tasks.ATTEND, {"text": text}, arguments)

    def models(self, **arguments: Unpack[named.CallArguments]) -> list[Model]:
        """List every version of every model of the server, loaded or not, by name, then version."""
        return self._send(tasks.LIST_MODELS, {}, arguments)

    def model(self, name: str, version: str = "", **arguments: Unpack[named.CallArguments]) -> Model:
        """Describe one model; without `version`, the version that serves requests without one."""
        return self._send(tasks.GET_MODEL, {"name": name, "version": version}, arguments)

    def load_model(self, name: str, version: str = "", **arguments: Unpack[named.CallArguments]) -> list[Model]:
        """Load a version from the server's repository, or load it again if its files have changed; returns once it serves.

        Args:
            version: A number, or a label such as "canary"; other versions stay as they are. Without it, the server loads the
                versions that the model's version policy selects (the newest by default) and then unloads the others.
            arguments: `timeout_seconds` and `request_id`; loading continues after the deadline.

        Raises:
            NotFoundError: The repository has no such model or version.
            PermissionDeniedError: This caller may not load models, or nobody may.
            FailedPreconditionError: The model cannot be served (loaded versions stay), or the server does not load on request.
        """
        return self._send(tasks.LOAD_MODEL, {"name": name, "version": version}, arguments)

    def unload_model(self, name: str, version: str = "", **arguments: Unpack[named.CallArguments]) -> None:
        """Unload one version, or all versions, of a model; returns once their requests have ended.

        Raises:
            NotFoundError: No such version is loaded.
            PermissionDeniedError: This caller may not unload models, or nobody may.
            FailedPreconditionError: The server does not unload models on request.
        """
        self._send(tasks.UNLOAD_MODEL, {"name": name, "version": version}, arguments)

    def infer(
        self,
        model: str,
        inputs: Mapping[str, Any],
        version: str = "",
        outputs: Sequence[str] | Mapping[str, int] = (),
        **arguments: Unpack[named.CallArguments],
    ) -> dict[str, Tensor]:
        """Run a model of plain tensors; returns its outputs by name, of which `numpy.asarray` makes arrays.

        Args:
            inputs: For each input an array, another buffer of numbers, or a list of texts; for one of images a list of files.
            version: Number or label; empty for the one that serves.
            outputs: Names of those to send; empty for all. In a mapping, a number above 0 asks for so many labels.

        Raises:
            InvalidArgumentError: An input is missing or unknown, or has another type or shape than the model declares.
        """
        return self._send(INFER, infer_request(model, version, inputs, outputs), arguments)

    def is_ready(self, service: str = "", *, timeout_seconds: float = HEALTH_TIMEOUT_SECONDS) -> bool:
        """Return whether the server is up and serving, from one request without retries.

        Args:
            service: Such as "triptych.v1.TranslationService"; empty for the server as a whole.
            timeout_seconds: Without a response within this time, the server is not ready.

        Raises:
            NotFoundError: The server has no such service.
            TriptychClientError: Any other failure, except that the server is unavailable or slow.
        """
        check = tasks.CHECK_HEALTH
        try:
            return check.result(send(self._channel, check, check.request(value=service), health_call(timeout_seconds)))
        except (UnavailableError, DeadlineExceededError):
            return False

    def close(self) -> None:
        """Close the connection and cancel running requests. The client cannot be used afterwards."""
        self._channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *details: object) -> None:
        self.close()
