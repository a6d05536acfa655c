"""Conversion of translations to the results of sentence requests. Imports no gRPC."""

from triptych_documents.sentences import Alignment, SentenceTranslation
from triptych_serving.models.translation.postprocess import Translation
from triptych_serving.scheduling.request import Finish


def sentence_translation_of(translation: Translation) -> SentenceTranslation:
    """Return the best hypothesis, with its alignment if that was requested."""
    best = translation.hypotheses[0]
    weights = best.alignment
    alignment = None if weights is None else Alignment(translation.source_spans, best.spans, weights.tolist())
    return SentenceTranslation(best.text, alignment, best.finish is Finish.LENGTH)
