"""The calls to the BERT family's services, for asyncio."""

from collections.abc import Sequence
from typing import Unpack

from triptych_client.arguments import (
    AnswerArguments,
    ClassifyTextArguments,
    ClassifyTokensArguments,
    EmbedArguments,
    FillMaskArguments,
)
from triptych_client.async_asking import AsyncAsking
from triptych_client.results import Results
from triptych_client.text_jobs import AnswerJob, ClassifyTextJob, ClassifyTokensJob, EmbedJob, FillMaskJob, TextOrPair
from triptych_client.text_results import AnsweredQuestion, ClassifiedText, Embedding, FilledText, LabelledText


class AsyncTextCalls(AsyncAsking):
    """TextCalls for asyncio: the same methods, arguments, results and errors."""

    async def fill_mask(self, text: str, **arguments: Unpack[FillMaskArguments]) -> FilledText:
        """Rank what may stand at each mask of a text."""
        return (await self.fill_mask_many([text], **arguments))[0]

    async def fill_mask_many(self, texts: Sequence[str], **arguments: Unpack[FillMaskArguments]) -> Results[FilledText]:
        """`fill_mask` for many texts."""
        return await self._ask(self._connection.fill_mask.FillMask, FillMaskJob(texts=texts, **self._with_call(arguments)))

    async def embed(self, text: str, **arguments: Unpack[EmbedArguments]) -> Embedding:
        """A text as a vector."""
        return (await self.embed_many([text], **arguments))[0]

    async def embed_many(self, texts: Sequence[str], **arguments: Unpack[EmbedArguments]) -> Results[Embedding]:
        """`embed` for many texts."""
        return await self._ask(self._connection.embedding.EmbedText, EmbedJob(texts=texts, **self._with_call(arguments)))

    async def classify_text(self, text: TextOrPair, **arguments: Unpack[ClassifyTextArguments]) -> ClassifiedText:
        """Rank the model's labels for a text, or for a pair of texts."""
        return (await self.classify_text_many([text], **arguments))[0]

    async def classify_text_many(
        self, inputs: Sequence[TextOrPair], **arguments: Unpack[ClassifyTextArguments]
    ) -> Results[ClassifiedText]:
        """`classify_text` for many texts or pairs."""
        job = ClassifyTextJob(inputs=inputs, **self._with_call(arguments))
        return await self._ask(self._connection.text_classification.ClassifyText, job)

    async def classify_tokens(self, text: str, **arguments: Unpack[ClassifyTokensArguments]) -> LabelledText:
        """Find the entities of a text, such as names of people and places."""
        return (await self.classify_tokens_many([text], **arguments))[0]

    async def classify_tokens_many(
        self, texts: Sequence[str], **arguments: Unpack[ClassifyTokensArguments]
    ) -> Results[LabelledText]:
        """`classify_tokens` for many texts."""
        job = ClassifyTokensJob(texts=texts, **self._with_call(arguments))
        return await self._ask(self._connection.token_classification.ClassifyTokens, job)

    async def answer(self, question: str, context: str, **arguments: Unpack[AnswerArguments]) -> AnsweredQuestion:
        """Find the answer to a question in a text."""
        return (await self.answer_many([(question, context)], **arguments))[0]

    async def answer_many(
        self, pairs: Sequence[tuple[str, str]], **arguments: Unpack[AnswerArguments]
    ) -> Results[AnsweredQuestion]:
        """`answer` for many pairs of question and context."""
        job = AnswerJob(pairs=pairs, **self._with_call(arguments))
        return await self._ask(self._connection.question_answering.AnswerQuestion, job)
