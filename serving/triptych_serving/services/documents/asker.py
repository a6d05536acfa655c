"""What a document asks the engine: sentences, of which one that cannot be translated fails nobody but itself."""

import asyncio
import re
from collections.abc import Sequence
from dataclasses import replace

from triptych_documents.sentences import Refusal, SentenceRequest, SentenceTranslation
from triptych_serving.bundle.languages import choose_language, standard_tag
from triptych_serving.errors import EngineError, InvalidInputError, OverloadedError
from triptych_serving.models.translation.options import DecodingOptions
from triptych_serving.models.translation.postprocess import Output
from triptych_serving.models.translation.translator import Translator
from triptych_serving.rpc.call_context import GrpcContext, ModelUse
from triptych_serving.services.documents.alignment import answer_of
from triptych_serving.services.documents.codec import Order, in_config
from triptych_serving.services.translation_calls import Texts, TranslationCalls
from triptych_serving.text.language_pair import SOURCE, TARGET

PLACE = re.compile(r"(?:contents|options\.target_prefix)\[(\d+)\]")  # how an error names one of the texts
ALL = "contents"  # how it names them all
PROBE = "."  # a text that any model takes
MAX_ROWS = 512  # that one document may have in the engine


class Asker:
    """Asks one model for one document.

    Args:
        calls: of all translations.
        translator: the model; the caller keeps it in use.
        order: what is asked for.
        context: of the call, which has a deadline.
    """

    def __init__(self, calls: TranslationCalls, translator: Translator, order: Order, context: GrpcContext) -> None:
        self._calls, self._translator, self._order, self._context = calls, translator, order, context
        self.use = ModelUse(translator.name, str(translator.version))  # of all batches together

    @property
    def rows(self) -> int:
        """Asks under way at a time that keep the engine busy."""
        return min(MAX_ROWS, 2 * self._translator.rows)

    @property
    def languages(self) -> tuple[str, str]:
        """Source and target, BCP 47; empty where nobody knows."""
        wish, manifest = self._order.wish, self._translator.manifest
        near = choose_language(wish.source_language, manifest.source_languages, SOURCE)
        far = choose_language(wish.target_language, manifest.target_languages, TARGET)
        return standard_tag(wish.source_language or near), standard_tag(wish.target_language or far)

    def check(self) -> None:
        """Whether the model takes these options.

        Raises:
            ServingError: it does not.
        """
        wish = self._order.wish
        try:
            self._translator.tokenize([PROBE], self._order.options, wish.source_language, wish.target_language)
        except InvalidInputError as error:
            raise in_config(error) from error

    async def answers(self, asks: Sequence[SentenceRequest]) -> list[SentenceTranslation | Refusal]:
        """Of asks that are all aligned, or all not; in order.

        Raises:
            ServingError: the model does not answer any more.
        """
        if not asks:
            return []
        try:
            outputs = await self._outputs(asks)
        except (InvalidInputError, EngineError) as error:
            return await self._without(asks, error)
        return [answer_of(output) for output in outputs]

    async def _without(
        self, asks: Sequence[SentenceRequest], error: InvalidInputError | EngineError
    ) -> list[SentenceTranslation | Refusal]:
        """Those of all but the one that is at fault; where nobody knows which, each is asked alone."""
        match = PLACE.fullmatch(error.field) if isinstance(error, InvalidInputError) else None
        if isinstance(error, InvalidInputError) and not match and error.field != ALL:
            raise in_config(error) from error
        if len(asks) == 1:
            return [Refusal(error.problem if isinstance(error, InvalidInputError) else str(error))]
        if match is None:
            return [answer for ask in asks for answer in await self.answers([ask])]
        place = int(match[1])
        rest = await self.answers([*asks[:place], *asks[place + 1 :]])
        return [*rest[:place], *await self.answers([asks[place]]), *rest[place:]]

    async def _outputs(self, asks: Sequence[SentenceRequest]) -> list[Output]:
        texts = Texts(self._order.wish, [ask.text for ask in asks], self._options(asks))
        while True:
            try:
                outputs, use = await self._calls.translate_by(self._translator, texts, self._context)
            except OverloadedError as error:  # others fill the queue: this document has time
                await asyncio.sleep(error.retry_after_seconds)
            else:
                self._note(use)
                return outputs

    def _options(self, asks: Sequence[SentenceRequest]) -> DecodingOptions:
        prefixes = tuple(ask.prefix for ask in asks)
        return replace(
            self._order.options,
            return_alignment=asks[0].aligned or None,
            target_prefix=prefixes if any(prefixes) else (),
            split_sentences=False,
        )

    def _note(self, use: ModelUse) -> None:
        """From the first batch's beginning to the last one's end; the queue is the longest wait."""
        stages, mine = use.stages, self.use.stages
        self.use.first_token = min(filter(None, (self.use.first_token, use.first_token)), default=0.0)
        if "prefill" in stages and "decode" in stages:
            began, ended = mine.get("inference", (stages["prefill"][0], 0.0))
            mine["inference"] = min(began, stages["prefill"][0]), max(ended, stages["decode"][1])
        if "queue" in stages:
            mine["queue"] = max(mine.get("queue", (0.0, 0.0)), stages["queue"], key=lambda stage: stage[1] - stage[0])
