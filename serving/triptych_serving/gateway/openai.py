"""OpenAI's API (https://platform.openai.com/docs/api-reference), as far as models can serve it: embeddings, generated text."""

import asyncio
import base64
import codecs
import json
import re
import sys
import time
import uuid
from array import array
from collections import Counter, defaultdict
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from google.protobuf import struct_pb2
from starlette.responses import StreamingResponse

from triptych.v1 import embedding_pb2, model_pb2, translation_pb2
from triptych.v1 import text_generation_pb2 as pb
from triptych_serving.gateway.call import HttpCall, Json, as_object, invalid, options_of
from triptych_serving.gateway.messages import mismatch, shortened
from triptych_serving.gateway.route import Api, ApiRoute, http_status, renamed, stream_error
from triptych_serving.models.generation.generator import CONTEXT_LIMIT
from triptych_serving.rpc.direct_calls import RpcError

STARTED = int(time.time())  # "created" of the models, whose age is unknown
SERVICE = "triptych.v1.TextGenerationService"
FINISH: Mapping[int, str] = {translation_pb2.FINISH_REASON_STOP: "stop", translation_pb2.FINISH_REASON_LENGTH: "length"}
TYPES = {
    **dict.fromkeys((400, 413), "invalid_request_error"),
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
}
LONGEST_TOKEN = 10  # digits
DONE = b"data: [DONE]\n\n"
DECODER = codecs.getincrementaldecoder("utf-8")
UNSUPPORTED: Mapping[str, tuple[Any, ...]] = {
    "functions": ([],),
    "best_of": (1,),
    "suffix": ("",),
    "modalities": (["text"],),
    "audio": (),
    "reasoning_effort": ("none",),
    "verbosity": ("medium",),
    "web_search_options": (),
    # Those of other servers.
    **dict.fromkeys(("include_stop_str_in_output", "use_beam_search", "continue_final_message"), (False,)),
    **dict.fromkeys(("guided_grammar", "grammar", "ebnf", "regex", "json_schema"), ("",)),
    **dict.fromkeys(("bad_words", "allowed_token_ids"), ([],)),
    "repeat_penalty": (1,),
    "typical_p": (1,),
    "stop_token_ids": ([],),
    "add_generation_prompt": (True,),
    "chat_template": (),
}
REMEDIES: Mapping[str, str] = {
    "functions": "use tools",
    "repeat_penalty": "use repetition_penalty",
    **dict.fromkeys(("regex", "json_schema"), "use structured_outputs"),
}
# vLLM's rules, and their former names.
GUIDED = {"guided_json": "json", "guided_regex": "regex", "guided_choice": "choice"}
RULES = ("response_format", "structured_outputs", *GUIDED)
OTHER_RULES: Mapping[str, tuple[Any, ...]] = dict.fromkeys(("grammar", "structural_tag"), ())
ANY_OBJECT = {"json_schema": '{"type": "object"}'}
TOOLS: Mapping[str, tuple[Any, ...]] = {"tools": ([],), "tool_choice": ("none", "auto")}  # of chats alone
ALLOWED = "allowed_tools"  # type of a choice: some of the tools
OLD_CALL: Mapping[str, tuple[Any, ...]] = {"function_call": ()}  # before there were tools
# OpenAI's names, and those that other servers have added -> fields of DecodingOptions.
OPTIONS: Mapping[str, tuple[str, type]] = {
    "top_p": ("sampling_topp", float),
    "top_k": ("sampling_topk", int),
    "min_p": ("sampling_minp", float),
    "seed": ("seed", int),
    "presence_penalty": ("presence_penalty", float),
    "frequency_penalty": ("frequency_penalty", float),
    "repetition_penalty": ("repetition_penalty", float),
    "length_penalty": ("length_penalty", float),
    "min_tokens": ("min_length", int),
    "beam_size": ("beam_size", int),
}
OPTION_NAMES = {
    "options.sampling_temperature": "temperature",
    **{f"options.{field}": name for name, (field, _) in OPTIONS.items()},
}
SHARED: Mapping[str, tuple[str, type]] = {
    "model": ("model", str),
    "max_tokens": ("max_tokens", int),
    "max_completion_tokens": ("max_tokens", int),
    "n": ("n", int),
}


async def embeddings(call: HttpCall) -> dict[str, Any]:
    given = await call.json()
    if _has_tokens(given, "input"):
        raise invalid("input: tokens are not supported, as each model has its own; send texts")
    texts, _ = given.take_texts("input")
    encoding = given.take("encoding_format", str, "float")
    if encoding not in ("float", "base64"):
        raise invalid(f"encoding_format: {encoding[:40]!r} is not float or base64")
    options = given.take_given({"model": ("model", str), "dimensions": ("dimensions", int)})
    response = await call.ask(embedding_pb2.EmbedTextRequest(contents=texts, **options))
    size = sum(len(one.values) for one in response.embeddings)
    return await call.offload(32 * size, _embeddings, response, encoding == "base64")


async def models(call: HttpCall) -> dict[str, object]:
    return {"object": "list", "data": [_model(one) for one in await call.ready_models()]}


async def model(call: HttpCall) -> dict[str, object]:
    response = await call.ask(model_pb2.GetModelRequest(name=call.request.path_params["model"]))
    return _model(response.model)


def _model(found: model_pb2.Model) -> dict[str, object]:
    return {"id": found.name, "object": "model", "created": STARTED, "owned_by": "triptych"}


def _embeddings(response: embedding_pb2.EmbedTextResponse, packed: bool) -> dict[str, Any]:
    tokens = sum(one.token_count for one in response.embeddings)
    data = [
        {"object": "embedding", "index": index, "embedding": _base64(one.values) if packed else list(one.values)}
        for index, one in enumerate(response.embeddings)
    ]
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return {"object": "list", "data": data, "model": response.model, "usage": usage}


def _base64(values: Sequence[float]) -> str:
    return base64.b64encode(array("f", values).tobytes()).decode()  # little-endian on all supported processors


@dataclass
class Answer:
    """Builder of one response in OpenAI's format, whole or in chunks; counts what each choice has had so far."""

    chat: bool
    model: str
    choices: int  # of each prompt
    names: Mapping[str, str] = field(default_factory=dict)  # of fields in errors
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    created: int = field(default_factory=lambda: int(time.time()))
    ends: Counter[int] = field(default_factory=Counter)  # characters of the tokens of each choice so far
    decoders: defaultdict[int, codecs.IncrementalDecoder] = field(
        default_factory=lambda: defaultdict(lambda: DECODER("replace"))
    )  # of each choice: a character may be made of several tokens

    def body(self, choices: Sequence[Any], chunk: bool = False, **more: Any) -> dict[str, Any]:
        """Return a response, or a chunk of a stream."""
        kind = f"chat.completion{'.chunk' if chunk else ''}" if self.chat else "text_completion"
        name = f"{'chatcmpl' if self.chat else 'cmpl'}-{self.id}"
        return {"id": name, "object": kind, "created": self.created, "model": self.model, "choices": choices, **more}

    def choice(
        self,
        prompt: int,
        index: int,
        text: str,
        tokens: Sequence[pb.TokenLogprob] = (),
        finish: int = 0,
        chunk: bool = False,
        calls: Sequence[pb.ToolCall] = (),
    ) -> dict[str, Any]:
        """Return a choice of a prompt, or with `chunk` a piece of one."""
        content: dict[str, Any] = {"text": text}
        numbers = [{"index": place} if chunk else {} for place in range(len(calls))]
        called = {"tool_calls": [number | _call(one) for number, one in zip(numbers, calls, strict=True)]} if calls else {}
        if self.chat and chunk:
            content = {"delta": ({"content": text} if text else {}) | called}
        elif self.chat:
            content = {"message": {"role": "assistant", "content": text or None if calls else text, **called}}
        number = prompt * self.choices + index
        probabilities = self.log_probabilities(number, tokens)
        reason = "tool_calls" if calls else FINISH.get(finish)
        return {"index": number, **content, "logprobs": probabilities, "finish_reason": reason}

    def log_probabilities(self, number: int, tokens: Sequence[pb.TokenLogprob]) -> dict[str, Any] | None:
        """Convert the next log-probabilities of a choice; None if there are none."""
        if not tokens:
            return None
        if self.chat:
            return {"content": log_probabilities_of(tokens)}
        offsets = []
        for each in tokens:
            offsets.append(self.ends[number])
            self.ends[number] += len(self.decoders[number].decode(each.bytes))
        return {
            "tokens": [each.token for each in tokens],
            "token_logprobs": [each.logprob if each.HasField("logprob") else None for each in tokens],
            "top_logprobs": [_best_of(each.top) or None for each in tokens],
            "text_offset": offsets,
        }


async def completions(call: HttpCall) -> Any:
    given = await call.json()
    prompts, top = _prompts(given), given.take_given({"logprobs": ("top_logprobs", int)})
    return await _answer(call, given, chat=False, echo=given.take("echo", bool, False), **prompts, **top)


async def chat_completions(call: HttpCall) -> Any:
    given = await call.json()
    messages = [chat_message(f"messages[{index}]", each) for index, each in enumerate(given.take("messages", list))]
    if not messages:
        raise invalid("messages: the list is empty, must have at least one message")
    top = {"top_logprobs": given.take("top_logprobs", int, 0)}
    if not given.take("logprobs", bool, False) and top.pop("top_logprobs"):
        raise invalid("top_logprobs: needs logprobs: true")
    variables = struct_pb2.Struct()
    for name, value in given.take("chat_template_kwargs", dict, {}).items():
        if not isinstance(value, (bool, float, str)) and not (isinstance(value, int) and abs(value) <= sys.float_info.max):
            raise invalid(mismatch(f"chat_template_kwargs.{name[:40]}", value, "a boolean, a number or a text"))
        variables[name] = value
    tools = await call.parts.threads.run_in_thread(tool_fields, given, "function")  # they may be as large as a body
    return await _answer(call, given, chat=True, messages=messages, template_variables=variables, **top, **tools)


async def _answer(call: HttpCall, given: Json, *, chat: bool, **own: Any) -> Any:
    """Answer a completion, or with `chat` a chat; `own` are the fields of GenerateRequest that only this kind has."""
    if name := call.request.path_params.get("model"):  # Hugging Face's clients send a placeholder beside it
        given["model"] = name
    given.refuse({**UNSUPPORTED, **({"best_of": (given.get("n"), 1), **TOOLS} if not chat else {})}, REMEDIES)
    # A schema may be as large as a body.
    place, rules = ("", {}) if given.keys().isdisjoint(RULES) else await call.parts.threads.run_in_thread(_rules, given)
    values = {**generation_fields(given), **rules, **own, "logit_bias": _biases(given)}
    limit = "max_tokens" if given.get("max_completion_tokens") is None else "max_completion_tokens"
    names = {"max_tokens": limit, "options.max_length": limit, **dict.fromkeys(rules, place)}
    names |= {} if chat else {"top_logprobs": "logprobs"}
    try:
        return await _generate(call, given, Answer(chat, values.get("model", ""), values.get("n", 1), names), values)
    except RpcError as error:
        raise renamed(error, names) from None


async def _generate(call: HttpCall, given: Json, answer: Answer, values: Mapping[str, Any]) -> Any:
    """Call the service with the fields of a request, and convert its answer. Raises RpcError: names these fields."""
    options = as_object(given.get("stream_options") or {}, "stream_options")
    usage = options.take("include_usage", bool, False)
    if given.take("stream", bool, False):
        answer.model = answer.model or await generator_name(call)
        first, events = await open_stream(call, values)
        return StreamingResponse(_events(answer, first, events, usage), media_type="text/event-stream")
    scores_only = values.get("echo") and values.get("max_tokens") == 0
    more = {"max_tokens": 1} if scores_only else {}
    if scores_only and "prompts" not in values:
        more["top_logprobs"] = values.get("top_logprobs", 0)  # which have the texts of the prompt's tokens
    response = await call.ask(pb.GenerateRequest(**{**values, **more}))
    if scores_only:
        _keep_prompts(response, values)
    answer.model = response.model
    return await call.offload(response.ByteSize(), _whole, answer, response)


def _keep_prompts(response: pb.GenerateResponse, values: Mapping[str, Any]) -> None:
    """Remove from texts that begin with the prompts of a request what was generated."""
    for place, generation in enumerate(response.generations):
        for choice in generation.choices:
            kept = choice.tokens[: len(choice.tokens) - choice.token_count]
            written = b"".join(token.bytes for token in kept).decode(errors="replace")
            choice.text = values["prompts"][place] if "prompts" in values else written
            del choice.tokens[len(kept) if "top_logprobs" in values else 0 :]
            choice.token_count, choice.finish_reason = 0, translation_pb2.FINISH_REASON_LENGTH


async def open_stream(call: HttpCall, fields: Mapping[str, Any]) -> tuple[Any, AsyncGenerator[Any]]:
    """Begin a stream; return its first event and the others. Raises RpcError: the request is refused, which has a status."""
    events = call.stream(f"/{SERVICE}/GenerateStream", pb.GenerateStreamRequest(**fields), pb.GenerateStreamResponse)
    return await call.while_connected(anext(events)), events


async def generator_name(call: HttpCall) -> str:
    """Return the name of the model that requests without a name use, as events do not name it; no other can accept them."""
    return next((one.name for one in await call.ready_models() if SERVICE in one.services), "")


def _whole(answer: Answer, response: pb.GenerateResponse) -> dict[str, Any]:
    choices = [
        answer.choice(prompt, index, choice.text, choice.tokens, choice.finish_reason, calls=choice.tool_calls)
        for prompt, generation in enumerate(response.generations)
        for index, choice in enumerate(generation.choices)
    ]
    return answer.body(choices, usage=_usage(response.generations))


async def _events(answer: Answer, first: Any, events: AsyncGenerator[Any], usage: bool) -> AsyncIterator[bytes]:
    """Yield the server-sent events of a stream."""
    sent: dict[tuple[int, int], int] = {}  # characters of each choice
    generations: list[pb.Generation] = []
    try:
        async with aclosing(events):
            if answer.chat:
                start = {"index": 0, "delta": {"role": "assistant", "content": ""}, "logprobs": None, "finish_reason": None}
                for index in range(answer.choices):
                    yield _event(answer.body([{**start, "index": index}], chunk=True))
            event = first
            while event is not None:
                for piece in _pieces(answer, event, sent, generations):
                    yield _event(answer.body([piece], chunk=True))
                event = await anext(events, None)
        if usage:
            yield _event(answer.body([], chunk=True, usage=_usage(generations)))
    except (Exception, asyncio.CancelledError) as failure:
        error = renamed(stream_error(failure), answer.names)
        yield _event(error_body(error, http_status(error)))
    yield DONE


def _pieces(
    answer: Answer, event: pb.GenerateStreamResponse, sent: dict[tuple[int, int], int], generations: list[pb.Generation]
) -> Iterator[dict[str, Any]]:
    """Convert an event of the service to pieces of choices; keeps count of what has been sent."""
    if event.HasField("piece"):
        piece = event.piece
        place = piece.prompt_index, piece.choice_index
        sent[place] = sent.get(place, 0) + len(piece.text)
        yield answer.choice(*place, piece.text, piece.tokens, chunk=True)
    elif event.HasField("result"):
        generations.append(event.result.generation)
        for index, choice in enumerate(event.result.generation.choices):
            place = event.result.prompt_index, index
            rest = choice.text[sent.get(place, 0) :]
            yield answer.choice(*place, rest, finish=choice.finish_reason, chunk=True, calls=choice.tool_calls)


def generation_fields(given: Json) -> dict[str, Any]:
    """Return the fields of GenerateRequest that completions and chats share."""
    values = given.take_given(SHARED)
    if given.get("stop") not in (None, []):
        values["stop"], _ = given.take_texts("stop")
    if given.get("top_k") == -1:  # vLLM's value for all tokens
        given["top_k"] = 0
    if isinstance(seed := given.get("seed"), int) and -(2**63) <= seed < 0:  # other servers take signed ones, -1 for none
        given["seed"] = None if seed == -1 else seed + 2**64
    options = given.take_given(OPTIONS)
    if given.take("ignore_eos", bool, False):  # benchmarks send it, for texts of equal lengths
        if "max_tokens" not in values:
            raise invalid("ignore_eos: needs max_tokens")
        options["min_length"] = values["max_tokens"]
    if given.get("temperature") is not None:
        temperature = given.take("temperature", float)
        if temperature == 0:
            options["sampling_topk"] = 1
        else:
            options["sampling_temperature"] = temperature
            options.setdefault("sampling_topk", 0)
    return {**values, "options": options_of(options)}


def _biases(given: Json) -> dict[int, float]:
    """Return what is added to logits, by token, which is a string in JSON. Raises RpcError: it is none, or no number."""
    biases = as_object(given.take("logit_bias", dict, {}), "logit_bias")
    for token in biases:
        if not (token.isascii() and token.isdigit() and int(token[:LONGEST_TOKEN]) < 2**32 and len(token) <= LONGEST_TOKEN):
            raise invalid(f"logit_bias: {shortened(token, 40)} is not the number of a token")
    return {int(token): biases.take(token, float) for token in biases}


def _rules(given: Json) -> tuple[str, dict[str, str]]:
    """Return the rules that texts follow, and the member that has them: `response_format`, or one of vLLM's."""
    shape, rules = (as_object({} if given.get(name) is None else given[name], name) for name in RULES[:2])
    rules.refuse(OTHER_RULES)
    found = [(f"{rules.path}{name}", _rule(rules, name, name)) for name in GUIDED.values() if rules.get(name) is not None]
    found += [(old, _rule(given, old, name)) for old, name in GUIDED.items() if given.get(old) is not None]
    if rules.take("json_object", bool, False):
        found.append((f"{rules.path}json_object", ANY_OBJECT))
    if shaped := format_rules(shape, "json_schema"):
        found.append((RULES[0], shaped))
    if len(found) > 1:
        raise invalid(f"{found[-1][0]}: is set beside {found[0][0]}; send one of them")
    return found[0] if found else ("", {})


def _rule(given: Json, name: str, kind: str) -> dict[str, str]:
    """Return a rule of vLLM's: a JSON schema, a regular expression, or texts to choose from."""
    if kind == "json":
        return {"json_schema": given.take_schema(name)}
    return {"regex": "|".join(map(re.escape, given.take_texts(name)[0])) if kind == "choice" else given.take_rules(name)}


def format_rules(shape: Json, holder: str = "") -> dict[str, str]:
    """Return the rules of a format; its member `holder` has the schema, if it is not there itself."""
    kind = shape.take("type", str, "text")
    if kind == "json_schema":
        outer = as_object(shape.get(holder), f"{shape.path}{holder}") if holder else shape
        return {"json_schema": outer.take_schema("schema")}
    if kind not in ("text", "json_object"):
        raise invalid(f"{shape.path}type: {kind[:40]!r} is not text, json_object or json_schema")
    if kind == "text":
        return {}
    # Clients of llama.cpp and others add a `schema`; Hugging Face's turn json_schema into json_object with a `value`.
    added = next((name for name in ("schema", "value") if shape.get(name) is not None), "")
    return {"json_schema": shape.take_schema(added)} if added else ANY_OBJECT


def error_body(error: RpcError, status: int) -> Mapping[str, Any]:
    """Return an error as OpenAI's JSON."""
    kind = TYPES.get(status, "server_error")
    code = "context_length_exceeded" if CONTEXT_LIMIT in error.message else error.code.name.lower()
    return {"error": {"message": error.message, "type": kind, "param": None, "code": code}}


def _has_tokens(given: Json, name: str) -> bool:
    """Tell whether a member has tokens, or lists of them, in place of texts."""
    value = given.get(name)
    return isinstance(value, list) and bool(value) and isinstance(value[0], (int, list))


def _prompts(given: Json) -> dict[str, Any]:
    """Return the field with the prompts of a completion. Raises RpcError: they are neither texts nor tokens."""
    if not _has_tokens(given, "prompt"):
        return {"prompts": given.take_texts("prompt")[0]}
    value = given["prompt"]
    lists = value if isinstance(value[0], list) else [value]
    if not all(isinstance(each, list) and all(type(token) is int and 0 <= token < 2**32 for token in each) for each in lists):
        raise invalid("prompt: has neither texts alone nor tokens alone, which are numbers")
    return {"token_prompts": [pb.TokenPrompt(tokens=each) for each in lists]}


def chat_message(name: str, value: object, kinds: Sequence[str] = ("text",)) -> pb.ChatMessage:
    """Convert a message, whose content may be in parts of these kinds. Raises RpcError: it is none; names its member."""
    message = as_object(value, name)
    message.refuse(OLD_CALL)
    calls = message.take("tool_calls", list, [])
    is_empty = message.get("content") is None and message.get("role") == "assistant"  # an answer with calls, or without a text
    content = "" if is_empty else content_text(message, "content", kinds)
    found = pb.ChatMessage(role=message.take("role", str), content=content)
    for place, each in enumerate(calls):
        outer = as_object(each, f"{name}.tool_calls[{place}]")
        function = as_object(outer.get("function"), f"{outer.path}function")
        found.tool_calls.add(
            id=outer.take("id", str, ""), name=function.take("name", str), arguments=function.take("arguments", str, "")
        )
    found.tool_call_id, found.name = message.take("tool_call_id", str, ""), message.take("name", str, "")
    return found


def content_text(message: Json, name: str, kinds: Sequence[str]) -> str:
    """Return a member that is a text, or a list of parts of these kinds. Raises RpcError: it is neither; names it."""
    content, place = message.get(name), f"{message.path}{name}"
    if isinstance(content, list):
        parts = [as_object(part, f"{place}[{index}]") for index, part in enumerate(content)]
        if any(part.get("type") not in kinds for part in parts):
            raise invalid(f"{place}: only parts of type {', '.join(kinds)} are supported")
        content = "".join(part.take("text", str) for part in parts)
    if not isinstance(content, str):
        raise invalid(f"{place}: must be a string, or a list of parts of type {', '.join(kinds)}")
    return content


def tool_fields(given: Json, holder: str = "") -> dict[str, Any]:
    """Return the fields of functions that may be called; their member `holder` describes each, if it is not there itself.

    If some of them are allowed, the model is told of these alone.
    """

    def described(tool: Json) -> Json:
        return as_object(tool.get(holder), f"{tool.path}{holder}") if holder else tool

    tools = [as_object(each, f"tools[{index}]") for index, each in enumerate(given.take("tools", list, []))]
    for tool in tools:
        if (kind := tool.get("type")) != "function":
            raise invalid(f"{tool.path}type: {shortened(kind, 40)} is not supported; function is")
    functions = [_tool(described(tool)) for tool in tools]
    if not isinstance(given.get("tool_choice"), dict):
        return {"tools": functions, "tool_choice": given.take("tool_choice", str, "")}
    chosen = as_object(given["tool_choice"], "tool_choice")
    if chosen.get("type") != ALLOWED:
        return {"tools": functions, "tool_choice": described(chosen).take("name", str)}
    allowed = as_object(chosen.get(ALLOWED), f"tool_choice.{ALLOWED}") if holder else chosen
    if (mode := allowed.take("mode", str)) not in ("auto", "required"):
        raise invalid(f"{allowed.path}mode: {shortened(mode, 40)} is not auto or required")
    listed = [as_object(each, f"{allowed.path}tools[{index}]") for index, each in enumerate(allowed.take("tools", list))]
    names = {described(each).take("name", str) for each in listed}
    for name in sorted(names.difference(function.name for function in functions)):
        raise invalid(f"{allowed.path}tools: {shortened(name, 40)} is not the name of one of the tools")
    return {"tools": [function for function in functions if function.name in names], "tool_choice": mode}


def _tool(function: Json) -> pb.Tool:
    parameters = "" if function.get("parameters") is None else json.dumps(function.take("parameters", dict))
    return pb.Tool(name=function.take("name", str), description=function.take("description", str, ""), parameters=parameters)


def _call(call: pb.ToolCall) -> dict[str, Any]:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


def _best_of(tokens: Sequence[pb.TokenLogprob]) -> dict[str, float]:
    """Map tokens to log-probabilities: the best of those with equal texts, such as parts of characters."""
    found: dict[str, float] = {}
    for each in tokens:  # the best comes first
        found.setdefault(each.token, each.logprob)
    return found


def log_probabilities_of(tokens: Sequence[pb.TokenLogprob]) -> list[dict[str, Any]]:
    """Convert tokens of a chat with their log-probabilities."""
    return [{**_token(each), "top_logprobs": list(map(_token, each.top))} for each in tokens]


def _token(token: pb.TokenLogprob) -> dict[str, Any]:
    return {"token": token.token, "logprob": token.logprob, "bytes": list(token.bytes)}


def token_counts(generations: Sequence[pb.Generation]) -> tuple[int, int, int]:
    """Count the tokens of prompts, of texts, and those of prompts that were cached."""
    prompt, cached = (sum(getattr(each, f"{kind}_token_count") for each in generations) for kind in ("prompt", "cached"))
    return prompt, sum(choice.token_count for each in generations for choice in each.choices), cached


def _usage(generations: Sequence[pb.Generation]) -> dict[str, Any]:
    prompt, completion, cached = token_counts(generations)
    counts = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
    return {**counts, "prompt_tokens_details": {"cached_tokens": cached}}


def _event(body: Mapping[str, Any]) -> bytes:
    return f"data: {json.dumps(body)}\n\n".encode()  # in ASCII: clients split lines at U+2028 and U+0085, too


API = Api(
    "OpenAI",
    (
        ApiRoute("/v1/models", models, ("GET",), "List models."),
        ApiRoute("/v1/models/{model}", model, ("GET",), "Describe a model."),
        ApiRoute("/v1/embeddings", embeddings, summary="Embed texts."),
        ApiRoute("/v1/completions", completions, summary="Continue texts."),
        ApiRoute("/v1/chat/completions", chat_completions, summary="Answer a chat."),
        ApiRoute("/models/{model}/v1/completions", completions, summary="Continue texts with this model."),
        ApiRoute("/models/{model}/v1/chat/completions", chat_completions, summary="Answer a chat with this model."),
    ),
    error_body,
    names={
        "contents": "input",
        **dict.fromkeys(("prompts", "token_prompts"), "prompt"),
        "template_variables": "chat_template_kwargs",
        **OPTION_NAMES,
    },
)
