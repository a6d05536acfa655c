"""The calls to the BERT family's services."""

from collections.abc import Sequence
from typing import Unpack

from triptych_client.arguments import (
    AnswerArguments,
    ClassifyTextArguments,
    ClassifyTokensArguments,
    EmbedArguments,
    FillMaskArguments,
)
from triptych_client.asking import Asking
from triptych_client.results import Results
from triptych_client.text_jobs import AnswerJob, ClassifyTextJob, ClassifyTokensJob, EmbedJob, FillMaskJob, TextOrPair
from triptych_client.text_results import AnsweredQuestion, ClassifiedText, Embedding, FilledText, LabelledText


class TextCalls(Asking):
    """What Client can do with models of the BERT family.

    Each call has a form for one input and a form, `..._many`, for a list, whose results have its order. As with
    `translate_many`, a long list is sent as several requests, some at once, each with its own `timeout_seconds`; if one
    fails, the others are cancelled. The named arguments are explained in `triptych_client.arguments`.

    Each raises:
        InvalidArgumentError: An input or an option that the model cannot take.
        NotFoundError: No such model or version.
        FailedPreconditionError: The model is of another kind.
        TriptychClientError: Base of these and of all other failures.
    """

    def fill_mask(self, text: str, **arguments: Unpack[FillMaskArguments]) -> FilledText:
        """Rank what may stand at each mask of a text.

            filled = client.fill_mask("The capital of France is [MASK].")
            print(filled.masks[0].candidates[0].sequence)

        Args:
            text: With one mask or several, written as the model's mask token: "[MASK]", or "<mask>" for RoBERTa.
            arguments: `top_k`, `targets`, `model`, `model_version`, `timeout_seconds`, `request_id`.
        """
        return self.fill_mask_many([text], **arguments)[0]

    def fill_mask_many(self, texts: Sequence[str], **arguments: Unpack[FillMaskArguments]) -> Results[FilledText]:
        """`fill_mask` for many texts."""
        return self._ask(self._connection.fill_mask.FillMask, FillMaskJob(texts=texts, **self._with_call(arguments)))

    def embed(self, text: str, **arguments: Unpack[EmbedArguments]) -> Embedding:
        """A text as a vector.

        Args:
            text: A sentence or a paragraph.
            arguments: `pooling`, `normalize`, `model`, `model_version`, `timeout_seconds`, `request_id`.
        """
        return self.embed_many([text], **arguments)[0]

    def embed_many(self, texts: Sequence[str], **arguments: Unpack[EmbedArguments]) -> Results[Embedding]:
        """`embed` for many texts."""
        return self._ask(self._connection.embedding.EmbedText, EmbedJob(texts=texts, **self._with_call(arguments)))

    def classify_text(self, text: TextOrPair, **arguments: Unpack[ClassifyTextArguments]) -> ClassifiedText:
        """Rank the model's labels for a text, or for a pair of texts.

        Args:
            text: A text; a tuple of two where the model takes pairs.
            arguments: `top_k`, `model`, `model_version`, `timeout_seconds`, `request_id`.
        """
        return self.classify_text_many([text], **arguments)[0]

    def classify_text_many(
        self, inputs: Sequence[TextOrPair], **arguments: Unpack[ClassifyTextArguments]
    ) -> Results[ClassifiedText]:
        """`classify_text` for many texts or pairs."""
        job = ClassifyTextJob(inputs=inputs, **self._with_call(arguments))
        return self._ask(self._connection.text_classification.ClassifyText, job)

    def classify_tokens(self, text: str, **arguments: Unpack[ClassifyTokensArguments]) -> LabelledText:
        """Find the entities of a text, such as names of people and places.

        Args:
            text: A sentence or a paragraph.
            arguments: `aggregation`, `model`, `model_version`, `timeout_seconds`, `request_id`.
        """
        return self.classify_tokens_many([text], **arguments)[0]

    def classify_tokens_many(self, texts: Sequence[str], **arguments: Unpack[ClassifyTokensArguments]) -> Results[LabelledText]:
        """`classify_tokens` for many texts."""
        job = ClassifyTokensJob(texts=texts, **self._with_call(arguments))
        return self._ask(self._connection.token_classification.ClassifyTokens, job)

    def answer(self, question: str, context: str, **arguments: Unpack[AnswerArguments]) -> AnsweredQuestion:
        """Find the answer to a question in a text.

        Args:
            question: In words.
            context: Where to look for the answer, which is a part of it.
            arguments: `top_k`, `max_answer_length`, `model`, `model_version`, `timeout_seconds`, `request_id`.
        """
        return self.answer_many([(question, context)], **arguments)[0]

    def answer_many(self, pairs: Sequence[tuple[str, str]], **arguments: Unpack[AnswerArguments]) -> Results[AnsweredQuestion]:
        """`answer` for many pairs of question and context."""
        job = AnswerJob(pairs=pairs, **self._with_call(arguments))
        return self._ask(self._connection.question_answering.AnswerQuestion, job)
