"""Translation of a document's sentences. A sentence that cannot be translated fails alone."""

import asyncio
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from triptych.decoding import DecodingOptions, SplitSentences
from triptych_documents.sentences import Refusal, SentenceRequest, SentenceResult
from triptych_serving.errors import EngineError, InvalidInputError, OverloadedError
from triptych_serving.models.translation.postprocess import Translation
from triptych_serving.models.translation.translator import TranslationModel
from triptych_serving.rpc.call_context import GrpcContext, ModelUse
from triptych_serving.services.documents.alignment import sentence_translation_of
from triptych_serving.services.documents.codec import DocumentQuery, config_error
from triptych_serving.services.translation_calls import TranslationCalls, TranslationQuery
from triptych_serving.text.languages import SOURCE, TARGET, choose_language
from triptych_text.languages import standard_tag

TEXT_FIELD = re.compile(r"(?:contents|options\.target_prefix)\[(\d+)\]")  # an error's field that names one text
ALL_TEXTS = "contents"  # an error's field that names all texts
PROBE = "."  # a text that every model accepts
MAX_ROWS = 512  # of one document in the engine


class SentenceTranslator:
    """Translate the sentences of one document with one model.

    Args:
        calls: shared by all translations.
        translator: the model; the caller keeps it in use.
        context: of the call, which has a deadline.
    """

    def __init__(
        self, calls: TranslationCalls, translator: TranslationModel[Any], query: DocumentQuery, context: GrpcContext
    ) -> None:
        self._calls, self._translator, self._query, self._context = calls, translator, query, context
        self.use = ModelUse(translator.name, str(translator.version))  # of all batches together

    @property
    def rows(self) -> int:
        """Number of requests in flight that keeps the engine busy."""
        return min(MAX_ROWS, 2 * self._translator.rows)

    @property
    def languages(self) -> tuple[str, str]:
        """Source and target, BCP 47; empty if unknown."""
        selector, manifest = self._query.selector, self._translator.manifest
        source = choose_language(selector.source_language, manifest.source_languages, SOURCE)
        target = choose_language(selector.target_language, manifest.target_languages, TARGET)
        return standard_tag(selector.source_language or source), standard_tag(selector.target_language or target)

    def check(self) -> None:
        """Check that the model accepts the options. Raises ServingError: it does not."""
        try:
            self._translator.prepare([PROBE], self._query.options, *self._query.selector.languages)
        except InvalidInputError as error:
            raise config_error(error) from error

    async def translate(self, requests: Sequence[SentenceRequest]) -> list[SentenceResult]:
        """Translate requests that are all aligned or all not; keeps their order.

        Raises:
            ServingError: the model cannot serve any request.
        """
        if not requests:
            return []
        try:
            translations = await self._translations(requests)
        except (InvalidInputError, EngineError) as error:
            return await self._isolate(requests, error)
        return [sentence_translation_of(translation) for translation in translations]

    async def _isolate(
        self, requests: Sequence[SentenceRequest], error: InvalidInputError | EngineError
    ) -> list[SentenceResult]:
        """Translate all requests but the faulty one; if the error does not tell which one, translate each alone."""
        match = TEXT_FIELD.fullmatch(error.field) if isinstance(error, InvalidInputError) else None
        if isinstance(error, InvalidInputError) and not match and error.field != ALL_TEXTS:
            raise config_error(error) from error
        if len(requests) == 1:
            return [Refusal(error.problem if isinstance(error, InvalidInputError) else str(error))]
        if match is None:
            return [result for request in requests for result in await self.translate([request])]
        index = int(match[1])
        others = await self.translate([*requests[:index], *requests[index + 1 :]])
        return [*others[:index], *await self.translate([requests[index]]), *others[index:]]

    async def _translations(self, requests: Sequence[SentenceRequest]) -> list[Translation]:
        texts = [request.text for request in requests]
        query = TranslationQuery(self._query.selector, texts, self._options(requests))
        while True:
            try:
                translations, use = await self._calls.translate_with(self._translator, query, self._context)
            except OverloadedError as error:  # the queue is full, and a document can wait
                await asyncio.sleep(error.retry_after_seconds)
            else:
                self._record(use)
                return translations

    def _options(self, requests: Sequence[SentenceRequest]) -> DecodingOptions:
        return replace(
            self._query.options,
            return_alignment=(requests[0].aligned and self._translator.aligns) or None,
            target_prefix=(),
            split_sentences=SplitSentences.OFF,
        )

    def _record(self, use: ModelUse) -> None:
        """Extend the inference stage to this batch; the queue stage is the longest wait of a batch."""
        stages, mine = use.stages, self.use.stages
        self.use.first_token = min(filter(None, (self.use.first_token, use.first_token)), default=0.0)
        if "prefill" in stages and "decode" in stages:
            began, ended = mine.get("inference", (stages["prefill"][0], 0.0))
            mine["inference"] = min(began, stages["prefill"][0]), max(ended, stages["decode"][1])
        if "queue" in stages:
            mine["queue"] = max(mine.get("queue", (0.0, 0.0)), stages["queue"], key=lambda stage: stage[1] - stage[0])
