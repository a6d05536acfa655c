"""The tasks that can be measured: subcommands of `triptych bench`."""

from dataclasses import dataclass
from enum import StrEnum


class InputKind(StrEnum):
    """The kind of one input."""

    TEXT = "text"
    PAIR = "pair"  # two texts, separated by a tab
    TEXT_OR_PAIR = "text or pair"
    IMAGE = "image"
    TENSORS = "tensors"  # of any model


class QualityMetric(StrEnum):
    """The metric that compares outputs with references."""

    BLEU = "BLEU"
    ACCURACY = "accuracy"  # share of inputs whose best output equals the reference
    NONE = ""


@dataclass(frozen=True)
class BenchTask:
    """A task: model capability, service, inputs and quality metric."""

    capability: str  # as in the manifests of models
    service: str  # of triptych.v1
    kind: InputKind
    metric: QualityMetric
    help: str


TEXT, PAIR = InputKind.TEXT, InputKind.PAIR
BLEU, ACCURACY, NONE = QualityMetric.BLEU, QualityMetric.ACCURACY, QualityMetric.NONE

TASKS = {
    "translate": BenchTask("translation", "TranslationService", TEXT, BLEU, "Translation, unary or streamed."),
    "generate": BenchTask("text-generation", "TextGenerationService", TEXT, NONE, "Text generation, streamed or unary."),
    "score": BenchTask("translation", "TranslationService", PAIR, NONE, "Likelihood of given translations."),
    "fill": BenchTask("fill-mask", "FillMaskService", TEXT, ACCURACY, "Masked tokens."),
    "embed": BenchTask("embedding", "EmbeddingService", TEXT, NONE, "Text embeddings."),
    "classify-text": BenchTask(
        "text-classification", "TextClassificationService", InputKind.TEXT_OR_PAIR, ACCURACY, "Labels of texts."
    ),
    "classify-tokens": BenchTask("token-classification", "TokenClassificationService", TEXT, NONE, "Names and other entities."),
    "answer": BenchTask("question-answering", "QuestionAnsweringService", PAIR, ACCURACY, "Answers from texts."),
    "classify": BenchTask("image-classification", "ImageClassificationService", InputKind.IMAGE, ACCURACY, "Labels of images."),
    "infer": BenchTask("", "", InputKind.TENSORS, NONE, "Tensors of any model on an Open Inference Protocol server."),
}
