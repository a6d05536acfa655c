"""triptych.v1.TextGenerationService."""

from collections.abc import AsyncIterator, Iterable
from contextlib import aclosing
from typing import Any

from google.protobuf import struct_pb2

from triptych.v1 import text_generation_pb2 as pb
from triptych.v1 import text_generation_pb2_grpc, translation_pb2
from triptych_serving.errors import InvalidInputError
from triptych_serving.models.generation.chat import ChatMessage, TemplateValue
from triptych_serving.models.generation.generator import Generator
from triptych_serving.models.generation.options import GenerationRequest
from triptych_serving.models.generation.text import GeneratedChoice, Generation
from triptych_serving.models.generation.tools import Tool, ToolCall
from triptych_serving.rpc.call_context import GrpcContext, ModelUse
from triptych_serving.scheduling.request import TokenLogProbability
from triptych_serving.services.decode_calls import DecodeCalls, FinishedText, TextPiece
from triptych_serving.services.generation_calls import GenerationQuery
from triptych_serving.services.v1.codec import FINISH, joined, optional_from, options_from, selector_from, served_by


class TextGenerationServicer(text_generation_pb2_grpc.TextGenerationServiceServicer):
    """Serve Generate and GenerateStream. Single responses are returned packed."""

    def __init__(self, calls: DecodeCalls) -> None:
        self._calls = calls

    async def Generate(self, request: pb.GenerateRequest, context: GrpcContext) -> Any:
        query = GenerationQuery(selector_from(request), _request_from(request), _packed)
        generations, use = await self._calls.run(query, context)
        return joined(generations, pb.GenerateResponse(**served_by(use)))

    async def GenerateStream(
        self, request: pb.GenerateStreamRequest, context: GrpcContext
    ) -> AsyncIterator[pb.GenerateStreamResponse]:
        query = GenerationQuery(selector_from(request), _request_from(request), _generation_to)
        async with aclosing(self._calls.stream(query, context)) as events:
            async for event in events:
                if isinstance(event, TextPiece):
                    tokens = _tokens_to(event.model, event.log_probabilities)
                    piece = pb.GenerationPiece(
                        prompt_index=event.index, choice_index=event.choice, text=event.text, tokens=tokens
                    )
                    yield pb.GenerateStreamResponse(piece=piece)
                elif isinstance(event, FinishedText):
                    result = pb.GenerationResult(prompt_index=event.index, generation=event.result)
                    yield pb.GenerateStreamResponse(result=result)
                elif isinstance(event, ModelUse):
                    yield pb.GenerateStreamResponse(summary=translation_pb2.StreamSummary(**served_by(event)))


def _request_from(request: pb.GenerateRequest | pb.GenerateStreamRequest) -> GenerationRequest:
    if not request.prompts and not request.token_prompts and not request.messages:
        raise InvalidInputError("prompts", "there are neither prompts nor messages")
    return GenerationRequest(
        prompts=list(request.prompts),
        token_prompts=[list(prompt.tokens) for prompt in request.token_prompts],
        messages=[_message_from(message) for message in request.messages],
        options=options_from(request.options),
        max_tokens=optional_from(request, "max_tokens"),
        n=optional_from(request, "n"),
        stop=tuple(request.stop),
        top_logprobs=optional_from(request, "top_logprobs"),
        echo=request.echo,
        json_schema=request.json_schema,
        regex=request.regex,
        template_variables={name: _variable_from(value) for name, value in request.template_variables.fields.items()},
        tools=[Tool(tool.name, tool.description, tool.parameters) for tool in request.tools],
        tool_choice=request.tool_choice,
        logit_bias=dict(request.logit_bias),
    )


def _message_from(message: pb.ChatMessage) -> ChatMessage:
    calls = tuple(ToolCall(call.id, call.name, call.arguments) for call in message.tool_calls)
    return ChatMessage(message.role, message.content, calls, message.tool_call_id, message.name)


def _variable_from(value: struct_pb2.Value) -> TemplateValue:
    """Convert a value; of another type than those that are allowed to None."""
    kind = value.WhichOneof("kind")
    if kind == "number_value":  # JSON has one type for all
        return int(value.number_value) if value.number_value.is_integer() else value.number_value
    return value.bool_value if kind == "bool_value" else value.string_value if kind == "string_value" else None


def _packed(generator: Generator, generation: Generation) -> bytes:
    return pb.GenerateResponse(generations=[_generation_to(generator, generation)]).SerializeToString()


def _generation_to(generator: Generator, generation: Generation) -> pb.Generation:
    return pb.Generation(
        choices=[_choice_to(generator, choice) for choice in generation.choices],
        prompt_token_count=generation.prompt_token_count,
        cached_token_count=generation.cached_token_count,
    )


def _choice_to(generator: Generator, choice: GeneratedChoice) -> pb.GenerationChoice:
    return pb.GenerationChoice(
        text=choice.text,
        finish_reason=FINISH[choice.finish],
        stop_sequence=choice.stop_sequence,
        token_count=choice.token_count,
        score=choice.score,
        tokens=_tokens_to(generator, choice.log_probabilities),
        tool_calls=[pb.ToolCall(id=call.id, name=call.name, arguments=call.arguments) for call in choice.tool_calls],
    )


def _tokens_to(generator: Generator, tokens: Iterable[TokenLogProbability]) -> list[pb.TokenLogprob]:
    return [
        _token_to(generator, each.token, each.log_probability, [_token_to(generator, *one) for one in each.top])
        for each in tokens
    ]


def _token_to(
    generator: Generator, token: int, log_probability: float | None, top: Iterable[pb.TokenLogprob] = ()
) -> pb.TokenLogprob:
    surface = generator.bytes_of(token)
    text = surface.decode(errors="replace")
    return pb.TokenLogprob(token=text, bytes=surface, id=token, logprob=log_probability, top=top)
