"""Outputs of a translation model as answers to what documents ask."""

from triptych_documents.sentences import Alignment, SentenceTranslation
from triptych_serving.models.translation.postprocess import Output
from triptych_serving.scheduling.request import Finish


def answer_of(output: Output) -> SentenceTranslation:
    """The best translation, with its alignment where that was asked for."""
    best = output.hypotheses[0]
    weights = best.alignment
    alignment = None if weights is None else Alignment(output.source_spans, best.spans, weights.tolist())
    return SentenceTranslation(best.text, alignment, best.finish is Finish.LENGTH)
