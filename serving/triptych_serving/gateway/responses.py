"""OpenAI's Responses API (https://platform.openai.com/docs/api-reference/responses): chats, of which nothing is stored."""

import asyncio
import json
import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
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
    OPTIONS,
    STREAM,
    chat_message,
    error_body,
    format_rules,
    generation_fields,
    generator_name,
    token_counts,
    token_of,
)
from triptych_serving.gateway.route import Api, ApiRoute, http_status, renamed, stream_error

PARTS = ("input_text", "output_text", "text")  # types of content
LOG_PROBABILITIES = "message.output_text.logprobs"
UNSUPPORTED: Mapping[str, tuple[Any, ...]] = {
    **dict.fromkeys(("previous_response_id", "conversation", "prompt"), ()),
    "background": (False,),
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "reasoning": ({}, {"effort": "none"}),
    "truncation": ("disabled",),
}
NAMES = {
    "messages": "input",
    "max_tokens": "max_output_tokens",
    "options.max_length": "max_output_tokens",
    "json_schema": "text.format.schema",
    "options.sampling_temperature": "temperature",
    **{f"options.{option}": name for name, (option, _) in OPTIONS.items()},
}


@dataclass
class Answer:
    """Builder of one response, whole or as events."""

    given: Json
    model: str = ""
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    created: int = field(default_factory=lambda: int(time.time()))

    def response(self, generation: pb.Generation | None = None) -> dict[str, Any]:
        """Return the response; without a generation it is in progress."""
        given, done = self.given, generation is not None
        is_cut = generation is not None and generation.choices[0].finish_reason == translation_pb2.FINISH_REASON_LENGTH
        return {
            "id": f"resp_{self.id}",
            "object": "response",
            "created_at": self.created,
            "status": "incomplete" if is_cut else "completed" if done else "in_progress",
            "error": None,
            "incomplete_details": {"reason": "max_output_tokens"} if is_cut else None,
            "model": self.model,
            "output": [] if generation is None else [self.message(generation.choices[0])],
            "usage": None if generation is None else _usage(generation),
            "text": given.get("text") or {"format": {"type": "text"}},
            "metadata": given.get("metadata") or {},
            **{name: given.get(name) for name in ("instructions", "max_output_tokens", "temperature", "top_p", "user")},
            **{"parallel_tool_calls": True, "tool_choice": "auto", "tools": [], "previous_response_id": None, "store": False},
        }

    def message(self, choice: pb.GenerationChoice | None = None) -> dict[str, Any]:
        """Return the message that is the output; without a choice it is in progress."""
        status = "in_progress"
        if choice is not None:
            status = "incomplete" if choice.finish_reason == translation_pb2.FINISH_REASON_LENGTH else "completed"
        content = [] if choice is None else [part(choice.text, choice.tokens)]
        return {"id": f"msg_{self.id}", "type": "message", "role": "assistant", "status": status, "content": content}


def part(text: str, tokens: Sequence[pb.TokenLogprob] = ()) -> dict[str, Any]:
    """Return a part of a message's content."""
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": _log_probabilities(tokens)}


async def responses(call: HttpCall) -> Any:
    given = await call.json()
    if name := call.request.path_params.get("model"):
        given["model"] = name
    given.refuse(UNSUPPORTED)
    text = as_object(given.get("text") or {}, "text")
    text.refuse({"verbosity": ("medium",)})
    shape = as_object(text.get("format") or {}, "text.format")
    rules = await call.parts.threads.run_in_thread(format_rules, shape)  # a schema may be as large as a body
    given["max_tokens"] = given.get("max_output_tokens")
    fields = {**generation_fields(given), **rules, "messages": _messages(given)}
    if LOG_PROBABILITIES in (given.get("include") or ()):
        fields["top_logprobs"] = given.take("top_logprobs", int, 0)
    answer = Answer(given, fields.get("model", ""))
    if given.take("stream", bool, False):
        answer.model = answer.model or await generator_name(call)
        events = call.stream(STREAM, pb.GenerateStreamRequest(**fields), pb.GenerateStreamResponse)
        first = await call.while_connected(anext(events))  # an error of the request has a status of its own
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
    if (kind := item.get("type")) not in (None, "message"):
        raise invalid(f"{name}.type: {shortened(kind, 40)} is not supported; message is")
    return chat_message(name, item, PARTS)


async def _events(answer: Answer, first: Any, stream: AsyncGenerator[Any]) -> AsyncIterator[bytes]:
    """Yield the server-sent events of a stream."""
    numbers = count()

    def event(kind: str, **members: Any) -> bytes:
        body = {"type": kind, "sequence_number": next(numbers), **members}
        return f"event: {kind}\ndata: {json.dumps(body, ensure_ascii=False)}\n\n".encode()

    place = {"item_id": f"msg_{answer.id}", "output_index": 0, "content_index": 0}
    try:
        async with aclosing(stream):
            for kind in ("response.created", "response.in_progress"):
                yield event(kind, response=answer.response())
            yield event("response.output_item.added", output_index=0, item=answer.message())
            yield event("response.content_part.added", **place, part=part(""))
            sent, given = 0, first
            while not given.HasField("result"):
                if given.HasField("piece"):
                    text, tokens = given.piece.text, given.piece.tokens
                    sent += len(text)
                    yield event("response.output_text.delta", **place, delta=text, logprobs=_log_probabilities(tokens))
                given = await anext(stream)
            generation = given.result.generation
            choice = generation.choices[0]
            if rest := choice.text[sent:]:
                yield event("response.output_text.delta", **place, delta=rest, logprobs=[])
            logprobs = _log_probabilities(choice.tokens)
            yield event("response.output_text.done", **place, text=choice.text, logprobs=logprobs)
            yield event("response.content_part.done", **place, part=part(choice.text, choice.tokens))
            yield event("response.output_item.done", output_index=0, item=answer.message(choice))
            response = answer.response(generation)
            yield event(f"response.{response['status']}", response=response)
    except (Exception, asyncio.CancelledError) as failure:
        error = renamed(stream_error(failure), NAMES)
        yield event("error", **error_body(error, http_status(error)))


def _log_probabilities(tokens: Sequence[pb.TokenLogprob]) -> list[dict[str, Any]]:
    return [{**token_of(each), "top_logprobs": list(map(token_of, each.top))} for each in tokens]


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
