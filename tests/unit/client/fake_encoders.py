"""What the scripted server answers for models of the BERT and the ViT family."""

# ruff: noqa: N802 - a servicer's methods have the names of its RPCs.

import threading
from collections.abc import Iterator

import grpc
from google.protobuf.message import Message

from triptych.v1 import (
    common_pb2,
    embedding_pb2,
    embedding_pb2_grpc,
    fill_mask_pb2,
    fill_mask_pb2_grpc,
    image_classification_pb2,
    image_classification_pb2_grpc,
    question_answering_pb2,
    question_answering_pb2_grpc,
    text_classification_pb2,
    text_classification_pb2_grpc,
    token_classification_pb2,
    token_classification_pb2_grpc,
)

SERVED = {"model": "guess", "model_version": "3", "timing": common_pb2.Timing(inference_seconds=0.25)}
YES = common_pb2.ScoredLabel(label="yes", score=0.75, index=1)


def classified_image(image: bytes) -> image_classification_pb2.ClassifiedImage:
    """As wide as the file has bytes."""
    return image_classification_pb2.ClassifiedImage(labels=[YES], width=len(image), height=2)


class FakeEncoders(
    fill_mask_pb2_grpc.FillMaskServiceServicer,
    embedding_pb2_grpc.EmbeddingServiceServicer,
    text_classification_pb2_grpc.TextClassificationServiceServicer,
    token_classification_pb2_grpc.TokenClassificationServiceServicer,
    question_answering_pb2_grpc.QuestionAnsweringServiceServicer,
    image_classification_pb2_grpc.ImageClassificationServiceServicer,
):
    """Each call, and each image of a stream, takes the next step of the script."""

    stream_ended: threading.Event

    def add_encoders(self, server: grpc.Server) -> None:
        fill_mask_pb2_grpc.add_FillMaskServiceServicer_to_server(self, server)
        embedding_pb2_grpc.add_EmbeddingServiceServicer_to_server(self, server)
        text_classification_pb2_grpc.add_TextClassificationServiceServicer_to_server(self, server)
        token_classification_pb2_grpc.add_TokenClassificationServiceServicer_to_server(self, server)
        question_answering_pb2_grpc.add_QuestionAnsweringServiceServicer_to_server(self, server)
        image_classification_pb2_grpc.add_ImageClassificationServiceServicer_to_server(self, server)

    def _take(self, request: Message, context: grpc.ServicerContext) -> None:
        raise NotImplementedError

    def FillMask(self, request: fill_mask_pb2.FillMaskRequest, context: grpc.ServicerContext) -> fill_mask_pb2.FillMaskResponse:
        """Every mask is an x."""
        self._take(request, context)
        results = []
        for text in request.contents:
            sequence = text.replace("[MASK]", "x", 1)
            candidate = fill_mask_pb2.MaskCandidate(score=0.5, token=7, token_str="x", sequence=sequence)
            masks = [fill_mask_pb2.FilledMask(candidates=[candidate])] * text.count("[MASK]")
            results.append(fill_mask_pb2.FilledText(masks=masks, token_count=len(text)))
        return fill_mask_pb2.FillMaskResponse(results=results, **SERVED)

    def EmbedText(
        self, request: embedding_pb2.EmbedTextRequest, context: grpc.ServicerContext
    ) -> embedding_pb2.EmbedTextResponse:
        self._take(request, context)
        embeddings = [embedding_pb2.Embedding(values=[0.5, len(text)], token_count=len(text)) for text in request.contents]
        return embedding_pb2.EmbedTextResponse(embeddings=embeddings, **SERVED)

    def ClassifyText(
        self, request: text_classification_pb2.ClassifyTextRequest, context: grpc.ServicerContext
    ) -> text_classification_pb2.ClassifyTextResponse:
        self._take(request, context)
        results = [text_classification_pb2.ClassifiedText(labels=[YES], token_count=len(each.text)) for each in request.inputs]
        return text_classification_pb2.ClassifyTextResponse(results=results, **SERVED)

    def ClassifyTokens(
        self, request: token_classification_pb2.ClassifyTokensRequest, context: grpc.ServicerContext
    ) -> token_classification_pb2.ClassifyTokensResponse:
        """Each text is one name."""
        self._take(request, context)
        results = [
            token_classification_pb2.LabelledText(
                entities=[token_classification_pb2.Entity(label="PER", score=0.75, text=text, start=0, end=len(text))],
                token_count=len(text),
            )
            for text in request.contents
        ]
        return token_classification_pb2.ClassifyTokensResponse(results=results, **SERVED)

    def AnswerQuestion(
        self, request: question_answering_pb2.AnswerQuestionRequest, context: grpc.ServicerContext
    ) -> question_answering_pb2.AnswerQuestionResponse:
        """The answer is always the end of the context."""
        self._take(request, context)
        results = []
        for each in request.inputs:
            end = len(each.context)
            answer = question_answering_pb2.Answer(text=each.context[2:], score=0.75, start=2, end=end)
            results.append(question_answering_pb2.AnsweredQuestion(answers=[answer], token_count=end))
        return question_answering_pb2.AnswerQuestionResponse(results=results, **SERVED)

    def ClassifyImage(
        self, request: image_classification_pb2.ClassifyImageRequest, context: grpc.ServicerContext
    ) -> image_classification_pb2.ClassifyImageResponse:
        self._take(request, context)
        results = [classified_image(image) for image in request.images]
        return image_classification_pb2.ClassifyImageResponse(results=results, **SERVED)

    def ClassifyImageStream(
        self, request_iterator: Iterator[image_classification_pb2.ClassifyImageStreamRequest], context: grpc.ServicerContext
    ) -> Iterator[image_classification_pb2.ClassifyImageStreamResponse]:
        """Refuses what begins with "bad"."""
        context.add_callback(self.stream_ended.set)
        for request in request_iterator:
            self._take(request, context)
            response = image_classification_pb2.ClassifyImageStreamResponse(image_id=request.image_id, **SERVED)
            if request.image.startswith(b"bad"):
                response.error.code = grpc.StatusCode.INVALID_ARGUMENT.value[0]
                response.error.message = "no image"
            else:
                response.result.CopyFrom(classified_image(request.image))
            yield response
