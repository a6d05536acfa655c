"""From the messages of the BERT family's and the image services to the client's dataclasses."""

from collections.abc import Iterable

from triptych.v1 import (
    common_pb2,
    embedding_pb2,
    fill_mask_pb2,
    image_classification_pb2,
    question_answering_pb2,
    text_classification_pb2,
    token_classification_pb2,
)
from triptych_client.codec import ServedFields
from triptych_client.image_results import ClassifiedImage
from triptych_client.options import Aggregation, Pooling
from triptych_client.text_results import (
    Answer,
    AnsweredQuestion,
    ClassifiedText,
    Embedding,
    Entity,
    FilledMask,
    FilledText,
    LabelledText,
    MaskCandidate,
    ScoredLabel,
)

POOLINGS = {Pooling.MEAN: embedding_pb2.POOLING_MEAN, Pooling.CLS: embedding_pb2.POOLING_CLS}
AGGREGATIONS = {
    Aggregation.NONE: token_classification_pb2.AGGREGATION_NONE,
    Aggregation.SIMPLE: token_classification_pb2.AGGREGATION_SIMPLE,
}


def labels_from(messages: Iterable[common_pb2.ScoredLabel]) -> tuple[ScoredLabel, ...]:
    return tuple(ScoredLabel(message.label, message.score, message.index) for message in messages)


def filled_mask_from(message: fill_mask_pb2.FilledMask) -> FilledMask:
    return FilledMask(
        tuple(
            MaskCandidate(candidate.score, candidate.token, candidate.token_str, candidate.sequence)
            for candidate in message.candidates
        )
    )


def filled_text_from(message: fill_mask_pb2.FilledText, served: ServedFields) -> FilledText:
    masks = tuple(filled_mask_from(mask) for mask in message.masks)
    return FilledText(masks=masks, token_count=message.token_count, **served)


def embedding_from(message: embedding_pb2.Embedding, served: ServedFields) -> Embedding:
    return Embedding(values=tuple(message.values), token_count=message.token_count, **served)


def classified_text_from(message: text_classification_pb2.ClassifiedText, served: ServedFields) -> ClassifiedText:
    return ClassifiedText(labels=labels_from(message.labels), token_count=message.token_count, **served)


def labelled_text_from(message: token_classification_pb2.LabelledText, served: ServedFields) -> LabelledText:
    entities = tuple(Entity(entity.label, entity.score, entity.text, entity.start, entity.end) for entity in message.entities)
    return LabelledText(entities=entities, token_count=message.token_count, **served)


def answered_question_from(message: question_answering_pb2.AnsweredQuestion, served: ServedFields) -> AnsweredQuestion:
    answers = tuple(Answer(answer.text, answer.score, answer.start, answer.end) for answer in message.answers)
    return AnsweredQuestion(answers=answers, token_count=message.token_count, **served)


def classified_image_from(message: image_classification_pb2.ClassifiedImage, served: ServedFields) -> ClassifiedImage:
    return ClassifiedImage(labels=labels_from(message.labels), width=message.width, height=message.height, **served)
