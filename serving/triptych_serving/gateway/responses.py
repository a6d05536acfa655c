"""OpenAI's Responses API (https://platform.openai.com/docs/api-reference/responses): chats, of which nothing is stored."""

import asyncio
import json
import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from starlette.responses import StreamingResponse

from triptych.v1 import text_generation_pb2 as pb
from triptych.v1 import translation_pb2
from triptych_serving.gateway.call import HttpCall, Json, as_object, invalid
from triptych_serving.gateway.messages import shortened
from triptych_serving.gateway.openai import (
    OPTION_NAMES,
    chat_message,
    content_text,
    error_body,
    format_rules,
    generation_fields,
    generator_name,
    log_probabilities_of,
    open_stream,
    token_counts,
    tool_fields,
)
from triptych_serving.gateway.route import Api, ApiRoute, http_status, renamed, stream_error

PARTS = ("input_text", "output_text", "text")  # types of content
LOG_PROBABILITIES = "message.output_text.logprobs"
UNSUPPORTED: Mapping[str, tuple[Any, ...]] = {
    **dict.fromkeys(("previous_response_id", "conversation", "prompt"), ()),
    "background": (False,),
    "truncation": ("disabled",),
}
Event = tuple[str, dict[str, Any]]  # its type and members

NAMES = {
    "messages": "input",
    "max_tokens": "max_output_tokens",
    "options.max_length": "max_output_tokens",
    "json_schema": "text.format.schema",
    **OPTION_NAMES,
}


@dataclass
class Answer:
    """Builder of one response, whole or as events."""

    given: Json
    model: str = ""
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    created: int = field(default_factory=lambda: int(time.time()))

    @property
    def place(self) -> dict[str, Any]:
        """Tell where the text is in the output."""
        return {"item_id": f"msg_{self.id}", "output_index": 0, "content_index": 0}

    def response(self, generation: pb.Generation | None = None) -> dict[str, Any]:
        """Return the response; without a generation it is in progress. What the request has of any size is not repeated."""
        choice = None if generation is None else generation.choices[0]
        status = _status(choice)
        return {
            "id": f"resp_{self.id}",
            "object": "response",
            "created_at": self.created,
            "status": status,
            "error": None,
            "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
            "model": self.model,
            "output": [] if choice is None else [*self.messages(choice), *map(function_call, choice.tool_calls)],
            "usage": None if generation is None else _usage(generation),
            **{name: self.given.get(name) for name in ("max_output_tokens", "temperature", "top_p")},
            **{"instructions": None, "metadata": {}, "tools": [], "tool_choice": "auto", "parallel_tool_calls": True},
            **{"previous_response_id": None, "store": False},
        }

    def messages(self, choice: pb.GenerationChoice) -> list[dict[str, Any]]:
        """Return the message of the output, unless it is empty beside calls."""
        return [self.message(choice)] if choice.text or not choice.tool_calls else []

    def message(self, choice: pb.GenerationChoice | None = None) -> dict[str, Any]:
        """Return the message that is the output; without a choice it is in progress."""
        content = [] if choice is None else [part(choice.text, choice.tokens)]
        return {"id": f"msg_{self.id}", "type": "message", "role": "assistant", "status": _status(choice), "content": content}

    def piece(self, text: str, tokens: Sequence[pb.TokenLogprob] = (), is_first: bool = False) -> Iterator[Event]:
        """Yield the events of a piece of the message."""
        if is_first:
            yield "response.output_item.added", {"output_index": 0, "item": self.message()}
            yield "response.content_part.added", {**self.place, "part": part("")}
        yield "response.output_text.delta", {**self.place, "delta": text, "logprobs": log_probabilities_of(tokens)}

    def ending(self, choice: pb.GenerationChoice, sent: str) -> Iterator[Event]:
        """Yield the events of the rest of the message after what was sent, and those of calls."""
        messages = self.messages(choice)
        for message in messages:
            if not sent or sent != choice.text:
                yield from self.piece(choice.text[len(sent) :], is_first=not sent)
            [content] = message["content"]
            yield "response.output_text.done", {**self.place, "text": choice.text, "logprobs": content["logprobs"]}
            yield "response.content_part.done", {**self.place, "part": content}
            yield "response.output_item.done", {"output_index": 0, "item": message}
        for index, item in enumerate(map(function_call, choice.tool_calls), start=len(messages)):
            place = {"output_index": index, "item_id": item["id"]}
            begun = {**item, "status": "in_progress", "arguments": ""}
            yield "response.output_item.added", {"output_index": index, "item": begun}
            yield "response.function_call_arguments.delta", {**place, "delta": item["arguments"]}
            yield "response.function_call_arguments.done", {**place, "name": item["name"], "arguments": item["arguments"]}
            yield "response.output_item.done", {"output_index": index, "item": item}


def function_call(call: pb.ToolCall) -> dict[str, Any]:
    """Return the item of a call."""
    kind = {"id": f"fc_{call.id}", "type": "function_call", "status": "completed"}
    return {**kind, "call_id": call.id, "name": call.name, "arguments": call.arguments}


def part(text: str, tokens: Sequence[pb.TokenLogprob] = ()) -> dict[str, Any]:
    """Return a part of a message's content."""
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": log_probabilities_of(tokens)}


async def responses(call: HttpCall) -> Any:
    given = await call.json()
    if name := call.request.path_params.get("model"):
        given["model"] = name
    given.refuse(UNSUPPORTED)
    as_object(given.get("reasoning") or {}, "reasoning").refuse({"effort": ("none",)})  # without it, nothing is summarized
    text = as_object(given.get("text") or {}, "text")
    text.refuse({"verbosity": ("medium",)})
    shape = as_object(text.get("format") or {}, "text.format")
    # Schemas may be as large as a body.
    rules = await call.parts.threads.run_in_thread(lambda: {**format_rules(shape), **tool_fields(given)})
    given["max_tokens"] = given.get("max_output_tokens")
    fields = {**generation_fields(given), **rules, "messages": _messages(given)}
    if LOG_PROBABILITIES in given.take("include", list, []):
        fields["top_logprobs"] = given.take("top_logprobs", int, 0)
    answer = Answer(given, fields.get("model", ""))
    if given.take("stream", bool, False):
        answer.model = answer.model or await generator_name(call)
        first, events = await open_stream(call, fields)
        return StreamingResponse(_events(answer, first, events), media_type="text/event-stream")
    response = await call.ask(pb.GenerateRequest(**fields))
    answer.model = response.model
    return await call.offload(response.ByteSize(), answer.response, response.generations[0])


def _messages(given: Json) -> list[pb.ChatMessage]:
    """Return the messages of `instructions` and `input`, which is a text or a list of items."""
    system = given.take("instructions", str, "")
    messages = [pb.ChatMessage(role="system", content=system)] if system else []
    items = given.get("input")
    if isinstance(items, str):
        items = [{"role": "user", "content": items}]
    if not isinstance(items, list) or not items:
        raise invalid("input: must be a text or a list of messages, and not empty")
    return messages + [_message(f"input[{index}]", item) for index, item in enumerate(items)]


def _message(name: str, value: object) -> pb.ChatMessage:
    item = as_object(value, name)
    kind = item.get("type", "message")
    if kind == "function_call":
        call = pb.ToolCall(id=item.take("call_id", str), name=item.take("name", str), arguments=item.take("arguments", str))
        return pb.ChatMessage(role="assistant", tool_calls=[call])
    if kind == "function_call_output":
        content = content_text(item, "output", PARTS)
        return pb.ChatMessage(role="tool", content=content, tool_call_id=item.take("call_id", str))
    if kind != "message":
        raise invalid(f"{name}.type: {shortened(kind, 40)} is not supported; message, function_call, function_call_output are")
    return chat_message(name, item, PARTS)


async def _events(answer: Answer, first: Any, stream: AsyncGenerator[Any]) -> AsyncIterator[bytes]:
    """Yield the server-sent events of a stream."""
    numbers = count()

    def event(kind: str, **members: Any) -> bytes:
        body = {"type": kind, "sequence_number": next(numbers), **members}
        return f"event: {kind}\ndata: {json.dumps(body)}\n\n".encode()  # in ASCII, as `openai` has it

    try:
        async with aclosing(stream):
            for kind in ("response.created", "response.in_progress"):
                yield event(kind, response=answer.response())
            sent, given = "", first
            while not given.HasField("result"):
                if given.HasField("piece"):
                    for kind, members in answer.piece(given.piece.text, given.piece.tokens, is_first=not sent):
                        yield event(kind, **members)
                    sent += given.piece.text
                given = await anext(stream)
            generation = given.result.generation
            for kind, members in answer.ending(generation.choices[0], sent):
                yield event(kind, **members)
            response = answer.response(generation)
            yield event(f"response.{response['status']}", response=response)
    except (Exception, asyncio.CancelledError) as failure:
        error = renamed(stream_error(failure), NAMES)
        yield event("error", **error_body(error, http_status(error)))


def _status(choice: pb.GenerationChoice | None) -> str:
    if choice is None:
        return "in_progress"
    return "incomplete" if choice.finish_reason == translation_pb2.FINISH_REASON_LENGTH else "completed"


def _usage(generation: pb.Generation) -> dict[str, Any]:
    prompt, completion, cached = token_counts([generation])
    return {
        "input_tokens": prompt,
        "input_tokens_details": {"cached_tokens": cached},
        "output_tokens": completion,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": prompt + completion,
    }


API = Api(
    "OpenAI Responses",
    (
        ApiRoute("/v1/responses", responses, summary="Answer a chat."),
        ApiRoute("/models/{model}/v1/responses", responses, summary="Answer a chat with this model."),
    ),
    error_body,
    names=NAMES,
)
