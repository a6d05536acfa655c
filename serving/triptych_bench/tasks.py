"""What can be measured: the verbs of the command line."""

from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """What an input is."""

    TEXT = "text"
    PAIR = "pair"  # two texts, with a tab between them
    TEXT_OR_PAIR = "text or pair"
    IMAGE = "image"
    TENSORS = "tensors"  # of any model


class Metric(StrEnum):
    """How good what came back is."""

    BLEU = "BLEU"
    ACCURACY = "accuracy"  # the best answer is the reference
    NONE = ""


@dataclass(frozen=True)
class Task:
    """A verb."""

    capability: str  # as models' manifests name it
    service: str  # of triptych.v1
    kind: Kind
    metric: Metric
    help: str


TASKS = {
    "translate": Task("translation", "TranslationService", Kind.TEXT, Metric.BLEU, "Translation, whole or streamed."),
    "score": Task("translation", "TranslationService", Kind.PAIR, Metric.NONE, "How likely given translations are."),
    "fill": Task("fill-mask", "FillMaskService", Kind.TEXT, Metric.ACCURACY, "Masked tokens."),
    "embed": Task("embedding", "EmbeddingService", Kind.TEXT, Metric.NONE, "Texts as vectors."),
    "classify-text": Task(
        "text-classification", "TextClassificationService", Kind.TEXT_OR_PAIR, Metric.ACCURACY, "Labels of texts."
    ),
    "classify-tokens": Task(
        "token-classification", "TokenClassificationService", Kind.TEXT, Metric.NONE, "Names and other entities."
    ),
    "answer": Task("question-answering", "QuestionAnsweringService", Kind.PAIR, Metric.ACCURACY, "Answers from texts."),
    "classify": Task("image-classification", "ImageClassificationService", Kind.IMAGE, Metric.ACCURACY, "Labels of images."),
    "infer": Task("", "", Kind.TENSORS, Metric.NONE, "Tensors of any model of an Open Inference Protocol server."),
}
