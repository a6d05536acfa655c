"""triptych.v1.QuestionAnsweringService."""

from triptych.v1 import question_answering_pb2, question_answering_pb2_grpc
from triptych_serving.errors import InvalidInputError
from triptych_serving.models.text.question_answering import AnsweredQuestion
from triptych_serving.models.text.tasks import QUESTION_ANSWERING_TASK
from triptych_serving.rpc.call_context import GrpcContext
from triptych_serving.services.options import optional_from
from triptych_serving.services.text_calls import TextCalls, TextQuery
from triptych_serving.services.v1.codec import wish_from


class QuestionAnsweringServicer(question_answering_pb2_grpc.QuestionAnsweringServiceServicer):
    """AnswerQuestion."""

    def __init__(self, calls: TextCalls) -> None:
        self._calls = calls

    async def AnswerQuestion(
        self, request: question_answering_pb2.AnswerQuestionRequest, context: GrpcContext
    ) -> question_answering_pb2.AnswerQuestionResponse:
        if not request.inputs:
            raise InvalidInputError("inputs", "there are no questions")
        inputs = [(one.question, one.context) for one in request.inputs]
        top_k, length = optional_from(request, "top_k"), optional_from(request, "max_answer_length")
        query = TextQuery(QUESTION_ANSWERING_TASK, inputs, {"top_k": top_k, "max_answer_length": length}, _question_to)
        answered = await self._calls.answer(wish_from(request), context, query)
        return question_answering_pb2.AnswerQuestionResponse(results=answered.messages, **answered.common)


def _question_to(answered: AnsweredQuestion) -> question_answering_pb2.AnsweredQuestion:
    answers = [
        question_answering_pb2.Answer(text=one.text, score=one.score, start=one.start, end=one.end) for one in answered.answers
    ]
    return question_answering_pb2.AnsweredQuestion(answers=answers, token_count=answered.token_count)
