"""Text generation on a real port: gRPC, streams, chats, OpenAI's package, the Open Inference Protocol and the command line."""

import json
import re
import threading
from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import openai
import pytest
import torch
import tritonclient.grpc
from huggingface_hub import InferenceClient
from tokenizers import Tokenizer
from torch import nn

from triptych.decoding import DecodingOptions
from triptych.v1 import text_generation_pb2 as pb
from triptych.v1 import text_generation_pb2_grpc
from triptych_client import Client, DeadlineExceededError, FailedPreconditionError, InvalidArgumentError
from triptych_client.results import FinishReason
from triptych_serving.gateway.options import GatewayOptions
from triptych_serving.models.generation.chat import ChatEncoder, ChatMessage, ChatTemplate
from triptych_serving.models.generation.generator import Generator
from triptych_serving.models.generation.options import GenerationRequest
from triptych_serving.repository.registry import ModelSelector
from triptych_serving.server import Server
from triptych_serving.services.generation_calls import GenerationQuery

from ..fixtures.decoders import decoder_source, greedy
from ..fixtures.sentences import SENTENCES
from ..fixtures.toy import TEXT_GENERATION_MODELS
from .support.in_process import Pace, options_of, serving
from .support.processes import PATIENCE_SECONDS, eventually

PROMPTS = ["A man is", "Two dogs run over the green grass", "", "x", "A group of people stands in front of a house. " * 2]
GREEDY: dict[str, Any] = {"sampling_topk": 1, "max_tokens": 12}


@dataclass(frozen=True)
class Served:
    """A server with one model, and the model in PyTorch."""

    server: Server
    client: Client
    model: nn.Module
    tokenizer: Tokenizer

    @property
    def generator(self) -> Generator:
        return self.server.registry.find_generator(ModelSelector())

    def ids(self, text: str) -> list[int]:
        return list(self.tokenizer.encode(text).ids) or [0]

    @torch.no_grad()
    def log_probabilities(self, ids: list[int]) -> torch.Tensor:
        return self.model(torch.tensor([ids])).log_softmax(-1)[0]

    def greedy(self, text: str, most: int) -> list[int]:
        return greedy(self.model, self.ids(text), most)


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    options = replace(options_of(TEXT_GENERATION_MODELS), gateway=GatewayOptions("127.0.0.1", 0))
    source = decoder_source("llama")
    assert source.tokenizer is not None
    with serving(options) as server, Client(f"127.0.0.1:{server.port}") as client:
        yield Served(server, client, source.model, source.tokenizer)


@pytest.fixture(scope="module")
def openai_client(served: Served) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"http://127.0.0.1:{served.server.http_port}/v1", api_key="key", max_retries=0)


def test_greedy_search_gives_the_models_tokens_alone_and_in_company(served: Served) -> None:
    expected = [served.tokenizer.decode(served.greedy(prompt, 12)) for prompt in PROMPTS]
    assert [one.text for one in served.client.generate_many(PROMPTS * 8, **GREEDY)] == expected * 8
    for prompt, text in zip(PROMPTS, expected, strict=True):
        alone = served.client.generate(prompt, top_logprobs=3, echo=True, **GREEDY)
        assert (alone.text, alone.prompt_token_count) == (prompt + text, len(served.ids(prompt)))
        first, *tokens = alone.choices[0].tokens
        assert (first.id, first.logprob, first.top) == (served.ids(prompt)[0], None, ())
        ids = [token.id for token in tokens]
        log_probabilities = served.log_probabilities([*served.ids(prompt)[:1], *ids][: 1 + len(ids)])
        found = [token.logprob for token in tokens]
        np.testing.assert_allclose(found, [log_probabilities[place, token] for place, token in enumerate(ids)], atol=1e-4)
        best = log_probabilities[: len(ids)].topk(3).values
        np.testing.assert_allclose([[one.logprob for one in token.top] for token in tokens], best, atol=1e-4)


def test_samples_are_reproducible_whatever_else_runs(served: Served) -> None:
    options: dict[str, Any] = {"sampling_topk": 0, "seed": 11, "n": 3, "max_tokens": 10, "top_logprobs": 0}
    first = served.client.generate(PROMPTS[0], **options)
    texts = [choice.text for choice in first.choices]
    assert len(set(texts)) == 3
    for generation in served.client.generate_many([*PROMPTS, *PROMPTS][::-1], **options)[4:6]:
        assert (
            texts == [choice.text for choice in generation.choices] or generation.prompt_token_count != first.prompt_token_count
        )
    assert [choice.text for choice in served.client.generate(PROMPTS[0], **options).choices] == texts
    several = served.client.generate_many(PROMPTS[:1] * 2, **{**options, "seed": None})
    assert several[0].text != several[1].text


def test_streams_send_whole_characters_and_hold_back_stop_sequences(served: Served) -> None:
    whole = served.client.generate(PROMPTS[1], sampling_topk=0, seed=4, max_tokens=40)
    stop = whole.text[3:7]  # begins and ends within tokens
    with served.client.generate_stream(PROMPTS[1], sampling_topk=0, seed=4, max_tokens=40) as stream:
        assert "".join(stream) == whole.text == stream.generation.text
    with served.client.generate_stream(PROMPTS[1], sampling_topk=0, seed=4, max_tokens=40, stop=["never", stop]) as stream:
        assert "".join(stream) == whole.text[: whole.text.index(stop)]
    ended = stream.generation.choices[0]
    assert (ended.finish_reason, ended.stop_sequence) == (FinishReason.STOP, stop)
    assert ended.token_count < whole.choices[0].token_count


def test_a_space_at_the_start_of_a_continuation_belongs_to_the_text(served: Served) -> None:
    def first(seed: int, **options: Any) -> str:
        return served.client.generate("A man", sampling_topk=0, seed=seed, max_tokens=1, **options).text

    seed, word = next((seed, text) for seed in range(1_000) if (text := first(seed))[:1] == " " != text)
    stopped = served.client.generate("A man", sampling_topk=0, seed=seed, max_tokens=40, stop=[word]).choices[0]
    assert (stopped.text, stopped.finish_reason, stopped.token_count) == ("", FinishReason.STOP, 1)
    assert word not in first(seed, suppress_sequences=[word])


def test_equal_beginnings_are_computed_once(served: Served) -> None:
    prompt = "Equal beginnings of prompts are computed once. " * 2
    first, second = (served.client.generate(prompt + end, **GREEDY) for end in ("a", "b"))
    assert first.cached_token_count == 0
    assert second.cached_token_count >= 16
    assert second.text == served.tokenizer.decode(served.greedy(prompt + "b", 12))


def test_chats_whose_template_writes_the_time_are_not_cached(served: Served, tmp_path: Path) -> None:
    (tmp_path / "dated").write_text("{{ strftime_now('%d') }}{{ messages[0].content }}")
    dated = copy(served.generator)
    dated.chat = ChatEncoder(ChatTemplate(tmp_path / "dated", {}), dated.tokenizer)
    chat, text = GenerationRequest(messages=(ChatMessage("user", "Hi"),)), GenerationRequest(prompts=("Hi",))
    for generator, request, is_cached in ((served.generator, chat, True), (dated, chat, False), (dated, text, True)):
        content = GenerationQuery(ModelSelector(), replace(request, options=DecodingOptions(beam_size=2))).content(generator)
        assert (content is not None) == is_cached


def test_a_chat_whose_template_writes_nothing_is_an_empty_prompt(served: Served, tmp_path: Path) -> None:
    (tmp_path / "bare").write_text("{{ messages[0].content }}")
    bare = copy(served.generator)
    bare.chat = ChatEncoder(ChatTemplate(tmp_path / "bare", {}), bare.tokenizer)
    options: dict[str, Any] = {"options": DecodingOptions(sampling_topk=1), "max_tokens": 5}
    chat = GenerationRequest(messages=(ChatMessage("user", ""),), **options)
    assert bare.generate(chat) == bare.generate(GenerationRequest(prompts=("",), **options))


def test_a_chat_is_rendered_by_the_models_template(served: Served) -> None:
    chat = [{"role": "user", "content": "Hello <|im_end|>"}]
    found = served.client.generate(chat, **GREEDY)
    start, end = (served.tokenizer.token_to_id(f"<|im_{name}|>") for name in ("start", "end"))
    served.tokenizer.encode_special_tokens = True
    user, assistant = (served.ids(text) for text in ("user\nHello <|im_end|>", "assistant\n"))
    ids = [start, *user, end, *served.ids("\n"), start, *assistant]
    assert end not in user
    assert found.prompt_token_count == len(ids)
    token = int(served.log_probabilities(ids)[-1].argmax())
    assert found.text.startswith(served.tokenizer.decode([token]).rstrip("\ufffd"))


def test_a_chat_may_set_variables_of_the_template(
    served: Served, openai_client: openai.OpenAI, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "template").write_text("{{ messages[0].content }}{% if think is false %} no{% endif %}{{ steps }}")
    monkeypatch.setattr(served.generator, "chat", ChatEncoder(ChatTemplate(tmp_path / "template", {}), served.tokenizer))
    chat: Any = [{"role": "user", "content": "Hi"}]
    cases: list[tuple[dict[str, Any], str]] = [
        ({}, "Hi"),
        ({"think": True}, "Hi"),
        ({"think": False}, "Hi no"),
        ({"think": 0, "steps": 20}, "Hi20"),
        ({"steps": "<|im_end|>"}, "Hi<|im_end|>"),
    ]
    served.tokenizer.encode_special_tokens = True
    for variables, prompt in cases:
        found = served.client.generate(chat, template_variables=variables, max_tokens=1)
        answer = openai_client.chat.completions.create(
            model="llama", messages=chat, max_tokens=1, extra_body={"chat_template_kwargs": variables}
        )
        assert answer.usage
        assert found.prompt_token_count == answer.usage.prompt_tokens == len(served.ids(prompt))
    bad: list[tuple[dict[str, Any], str]] = [
        ({"messages": 1}, "template_variables.messages: is set by the server"),
        ({"x": None}, "template_variables.x: must be a boolean, a number or a text"),
        ({"x": [1]}, "template_variables.x: must be a boolean, a number or a text"),
        ({"x": "x" * 1_001}, "template_variables.x: 1,001 characters, at most 1,000 are allowed"),
        (dict.fromkeys("abcdefghijklmnopq", 1), "template_variables: 17 variables are too many, at most 16 are allowed"),
    ]
    for variables, message in bad:
        with pytest.raises(InvalidArgumentError, match=message):
            served.client.generate(chat, template_variables=variables)
    nested: list[Any] = []
    for _ in range(500):
        nested = [nested]
    wanted = "must be a boolean, a number or a text"
    kinds = [(None, "NoneType None"), ([], "list .."), (10**400, "int 1000"), (nested, "list ...."), ({}, "dict ..")]
    for value, shown in kinds:
        message = rf"\.x: {shown}.*, {wanted}"
        extra = {"chat_template_kwargs": {"x": value}}
        with pytest.raises(openai.BadRequestError, match=f"chat_template_kwargs{message}"):
            openai_client.chat.completions.create(model="llama", messages=chat, extra_body=extra)
    with pytest.raises(InvalidArgumentError, match="template_variables: apply to messages only"):
        served.client.generate("Hi", template_variables={"think": False})


def test_a_cancelled_stream_frees_its_row(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    before = served.generator.engine.counters
    Pace(monkeypatch).slow.set()
    with served.client.generate_stream("x", sampling_topk=0, seed=1, max_tokens=120) as stream:
        next(stream)
    eventually(lambda: served.generator.count_rows() == (0, 0))
    after = served.generator.engine.counters
    assert (after.cancelled, after.freed) == (before.cancelled + 1, before.freed + 1)
    with pytest.raises(DeadlineExceededError):
        served.client.generate_many(PROMPTS, max_tokens=40, timeout_seconds=0.001)


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "long prompt": (
        {"prompt": "w " * 150},
        r"prompts\[0\]: 151 tokens are too long, this model's maximum context length is 128 tokens",
    ),
    "longer prompt": ({"prompt": "w" * 100_000}, r"prompts\[0\]: 100,000 characters are too long"),
    "max_tokens": (
        {"max_tokens": 126},
        r"max_tokens: 126 is too large after the \d tokens of prompts\[0\].*at most \d+ are left",
    ),
    "role": (
        {"prompt": [{"role": "robot", "content": "x"}]},
        r"messages\[0\].role: 'robot' is unknown, it must be one of: system",
    ),
    "role of the template": (
        {"prompt": [{"role": "developer", "content": "x"}]},
        "messages: the model's chat template rejects them: unknown",
    ),
    "stop": ({"stop": ["x" * 10_000]}, r"stop\[0\]: 10,000 characters are too long, at most 256"),
    "stops": ({"stop": ["x"] * 17}, "stop: 17 texts are too many, at most 16"),
    "top_logprobs": ({"top_logprobs": 10**6}, "top_logprobs: 1,000,000 is out of range, it must be at least 0 and at most 20"),
    "n": ({"n": 2}, "n: 2 is above beam_size, which is 1"),
    "beams": ({"beam_size": 2, "stop": ["x"]}, "stop: is not for beam search, options.beam_size is 2"),
    "rules of beams": ({"beam_size": 2, "json_schema": {}}, "json_schema: is not for beam search"),
    "two rules": ({"json_schema": "{}", "regex": "a"}, "json_schema: is set beside regex; send one of them"),
    "rules and length": ({"regex": "a", "min_length": 2}, "options.min_length: does not apply with regex"),
    "rules against bans": ({"regex": "a", "suppress_sequences": ["a"]}, "regex: the text cannot follow it: other options"),
    "schema": ({"json_schema": {"type": "odd"}}, "json_schema: Invalid type: odd; correct or simplify it"),
    "foreign": ({"coverage_penalty": 1.0}, "options.coverage_penalty: does not apply"),
    "contradiction": ({"max_tokens": 3, "max_length": 4}, "max_tokens: 3 contradicts options.max_length, which is 4"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_requests_are_refused_by_name(served: Served, case: str) -> None:
    arguments, message = BAD[case]
    with pytest.raises(InvalidArgumentError, match=message):
        served.client.generate(**{"prompt": "A man", **arguments})


def test_other_services_refuse_the_model(served: Served) -> None:
    with pytest.raises(FailedPreconditionError, match="it continues texts"):
        served.client.translate("x", model="llama")


def test_openai_completions(served: Served, openai_client: openai.OpenAI) -> None:
    expected = [one.text for one in served.client.generate_many(PROMPTS[:2], **GREEDY)]
    found = openai_client.completions.create(model="llama", prompt=PROMPTS[:2], temperature=0, max_tokens=12, logprobs=2)
    assert [choice.text for choice in found.choices] == expected
    assert found.usage
    assert found.usage.total_tokens == found.usage.prompt_tokens + found.usage.completion_tokens
    assert found.choices[1].logprobs
    assert len(found.choices[1].logprobs.top_logprobs or ()) == 12
    chunks = list(
        openai_client.completions.create(
            model="llama", prompt=PROMPTS[:1], temperature=0, max_tokens=12, logprobs=2, stream=True
        )
    )
    assert "".join(chunk.choices[0].text for chunk in chunks) == expected[0]
    echoed: Any = {"model": "llama", "prompt": PROMPTS[0], "temperature": 0, "max_tokens": 3, "echo": True, "logprobs": 1}
    whole = openai_client.completions.create(**echoed).choices[0]
    streamed = [chunk.choices[0].logprobs for chunk in openai_client.completions.create(**echoed, stream=True)]
    assert whole.logprobs
    assert whole.logprobs.tokens
    assert "".join(whole.logprobs.tokens) == whole.text
    assert [each is None for each in whole.logprobs.token_logprobs or ()] == [True] + [False] * (len(whole.logprobs.tokens) - 1)
    assert [token for each in streamed if each for token in each.tokens or ()] == whole.logprobs.tokens
    offsets = [offset for chunk in chunks if (given := chunk.choices[0].logprobs) for offset in given.text_offset or ()]
    assert found.choices[0].logprobs
    assert offsets == found.choices[0].logprobs.text_offset
    assert chunks[-1].choices[0].finish_reason == "length"


def test_prompts_may_be_tokens(served: Served, openai_client: openai.OpenAI) -> None:
    def ask(prompt: Any, **more: Any) -> list[Any]:
        shared: dict[str, Any] = {"model": "llama", "temperature": 0, "max_tokens": 12}
        return openai_client.completions.create(prompt=prompt, **{**shared, **more}).choices

    prompts = [served.ids(text) for text in PROMPTS[:2]]
    expected = [one.text for one in served.client.generate_many(PROMPTS[:2], **GREEDY)]
    assert [choice.text for choice in ask(prompts)] == expected
    assert [choice.text for choice in ask(prompts[1])] == expected[1:]
    end = served.tokenizer.token_to_id("<|endoftext|>")  # which is text in texts
    ids = [end, *prompts[0], end, *prompts[1]]
    [scored] = ask(ids, echo=True, logprobs=1, max_tokens=0)
    places = served.log_probabilities(ids)
    theirs = [float(places[place, token]) for place, token in enumerate(ids[1:])]
    assert scored.logprobs.token_logprobs == [None, *(pytest.approx(one, abs=1e-4) for one in theirs)]
    [plain] = ask(ids, echo=True, max_tokens=0)
    assert (scored.text, plain.text, plain.logprobs) == (PROMPTS[0] + PROMPTS[1], PROMPTS[0] + PROMPTS[1], None)
    for wrong, problem in (
        ([5, 99_999], "prompt[0]: 99,999 is not a token of the model, whose tokens are 0 to "),
        ([[5], [6] * 200], "prompt[1]: 200 tokens are too long"),
        ([5, -1], "prompt: has neither texts alone nor tokens alone"),
        ([[5], "a"], "prompt: has neither texts alone nor tokens alone"),
    ):
        with pytest.raises(openai.BadRequestError, match=re.escape(problem)):
            ask(wrong)
    with grpc.insecure_channel(f"127.0.0.1:{served.server.port}") as channel:
        both = pb.GenerateRequest(prompts=["a"], token_prompts=[pb.TokenPrompt(tokens=[5])])
        with pytest.raises(grpc.RpcError, match="token_prompts: are set beside prompts; send one of them"):
            text_generation_pb2_grpc.TextGenerationServiceStub(channel).Generate(both)


@torch.no_grad()
def test_logits_are_biased_as_asked(served: Served, openai_client: openai.OpenAI) -> None:
    ids = served.ids(PROMPTS[0])
    biased = served.log_probabilities(ids)[-1]
    best = biased.topk(3).indices.tolist()
    biases = {best[0]: -100.0, best[2]: 2.5}
    for token, value in biases.items():
        biased[token] += value
    common: dict[str, Any] = {"model": "llama", "prompt": ids, "max_tokens": 1, "logprobs": 1}
    names = {str(token): value for token, value in biases.items()}
    for temperature in (0, 1):  # greedy search, and a sample
        [found] = openai_client.completions.create(temperature=temperature, seed=5, logit_bias=names, **common).choices  # type: ignore[arg-type]
        assert found.logprobs is not None
        assert list(found.logprobs.top_logprobs[0].values()) == [pytest.approx(float(biased.max()), abs=1e-4)]
    chosen = served.client.generate(PROMPTS[0], logit_bias=biases, top_logprobs=0, sampling_topk=1, max_tokens=1).choices[0]
    assert chosen.tokens[0].id == int(biased.argmax())
    only = served.client.generate(PROMPTS[0], logit_bias={best[1]: 100}, top_logprobs=0, max_tokens=5).choices[0]
    assert {token.id for token in only.tokens} == {best[1]}
    beams = served.client.generate(PROMPTS[0], logit_bias={best[1]: 100}, beam_size=3, max_tokens=4)
    assert beams.text == served.tokenizer.decode([best[1]] * 4)
    for wrong, problem in (
        ({"5": 101}, "logit_bias[5]: 101.0 is out of range, it must be at least -100 and at most 100"),
        ({"99999": 1}, "logit_bias: 99,999 is not a token of the model, whose tokens are 0 to "),
        ({"a": 1}, "logit_bias: 'a' is not the number of a token"),
        ({"-1": 1}, "logit_bias: '-1' is not the number of a token"),
        ({"1" * 5_000: 1}, "is not the number of a token"),
        ({"5": "1"}, "logit_bias.5: str '1', must be a finite number"),
        ({str(token): 1 for token in range(1_025)}, "logit_bias: 1,025 tokens, the limit is 1,024"),
    ):
        with pytest.raises(openai.BadRequestError, match=re.escape(problem)):
            openai_client.completions.create(**common, extra_body={"logit_bias": wrong})


def test_ends_may_be_ignored(served: Served, openai_client: openai.OpenAI) -> None:
    def ask(text: str, **more: Any) -> Any:
        return openai_client.completions.create(model="llama", prompt=text, temperature=0, max_tokens=40, extra_body=more)

    texts = [text for text in SENTENCES[:40] if ask(text).choices[0].finish_reason == "stop"]
    assert texts
    for text in texts[:3]:
        whole = ask(text, ignore_eos=True)
        assert whole.usage.completion_tokens == 40
        assert whole.choices[0].text == ask(text, min_tokens=40).choices[0].text
    with pytest.raises(openai.BadRequestError, match="ignore_eos: needs max_tokens"):
        openai_client.completions.create(model="llama", prompt="x", extra_body={"ignore_eos": True})


def test_openai_chat(served: Served, openai_client: openai.OpenAI) -> None:
    messages: Any = [{"role": "user", "content": [{"type": "text", "text": "Hello!"}]}]
    shared: dict[str, Any] = {"model": "llama", "messages": messages, "temperature": 0.9, "seed": 3, "max_completion_tokens": 9}
    whole = openai_client.chat.completions.create(**shared, logprobs=True, top_logprobs=2, n=2)
    assert whole.choices[0].message.content != whole.choices[1].message.content
    assert whole.choices[0].logprobs
    assert len(whole.choices[0].logprobs.content or ()) == 9
    chunks = list(openai_client.chat.completions.create(**shared, n=2, stream=True, stream_options={"include_usage": True}))
    for index in (0, 1):
        parts = [choice.delta.content or "" for chunk in chunks for choice in chunk.choices if choice.index == index]
        assert "".join(parts) == whole.choices[index].message.content
    assert chunks[-1].usage == whole.usage.model_copy(update={"prompt_tokens_details": chunks[-1].usage.prompt_tokens_details})  # type: ignore[union-attr]
    unnamed = openai_client.chat.completions.create(**{**shared, "model": ""}, stream=True)
    assert {chunk.model for chunk in unnamed} == {"llama"}
    of_model = InferenceClient(f"http://127.0.0.1:{served.server.http_port}/models/llama")
    answer = of_model.chat_completion(messages, temperature=0.9, seed=3, max_tokens=9)
    assert answer.choices[0].message.content == whole.choices[0].message.content
    cases: list[tuple[dict[str, Any], str, str]] = [
        ({"extra_body": {"functions": [{"name": "f"}]}}, "functions: .* is not supported; use tools", "invalid_argument"),
        ({"frequency_penalty": 3}, "frequency_penalty: 3.0 is out of range", "invalid_argument"),
        ({"extra_body": {"regex": "yes|no"}}, "regex: 'yes.no' is not supported; use structured_outputs", "invalid_argument"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "role: 'robot' is unknown", "invalid_argument"),
        ({"messages": [{"role": "user", "content": "w " * 150}]}, "messages: .* are too long", "context_length_exceeded"),
        ({"max_completion_tokens": 120}, "max_completion_tokens: 120 is too large", "context_length_exceeded"),
    ]
    for refused, message, code in cases:
        with pytest.raises(openai.BadRequestError, match=message) as caught:
            openai_client.chat.completions.create(**{**shared, **refused}, stream=True)
        assert caught.value.code == code


def test_openai_responses(served: Served, openai_client: openai.OpenAI) -> None:
    """Answers are those of the chats with the same messages, whole and as events."""
    chat = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hello!"}]
    options: dict[str, Any] = {"model": "llama", "temperature": 0.9, "top_p": 0.9}
    expected = openai_client.chat.completions.create(messages=chat, max_tokens=9, seed=3, **options)  # type: ignore[call-overload]
    parts: Any = [{"role": "user", "content": [{"type": "input_text", "text": "Hello!"}]}]
    shared: dict[str, Any] = {**options, "instructions": "Be kind.", "max_output_tokens": 9, "extra_body": {"seed": 3}}
    shared |= {"include": ["message.output_text.logprobs"], "top_logprobs": 2}
    shared |= {"reasoning": {"effort": "none", "summary": None}}  # without effect
    whole = openai_client.responses.create(input=parts, **shared)
    assert whole.output_text == expected.choices[0].message.content
    assert (whole.status, whole.model) == ("incomplete", "llama")
    assert whole.incomplete_details is not None
    assert whole.incomplete_details.reason == "max_output_tokens"
    assert whole.usage is not None
    assert (whole.usage.input_tokens, whole.usage.total_tokens) == (
        expected.usage.prompt_tokens,
        expected.usage.total_tokens,
    )
    assert len(whole.output[0].content[0].logprobs) == 9
    events = list(openai_client.responses.create(input=parts, **{**shared, "model": None}, stream=True))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    pieces = [event for event in events if event.type == "response.output_text.delta"]
    assert "".join(event.delta for event in pieces) == whole.output_text
    assert sum(len(event.logprobs) for event in pieces) == 9
    assert events[-1].type == "response.incomplete"
    assert events[-1].response.output_text == whole.output_text
    assert events[-1].response.model == "llama"
    for refused, problem in (
        ({"input": []}, "input: must be a text or a list"),
        ({"input": [{"type": "reasoning", "summary": []}]}, r"input\[0\].type: 'reasoning' is not supported"),
        ({"input": "Hi", "reasoning": {"effort": "low"}}, "reasoning.effort: 'low' is not supported"),
        ({"input": "Hi", "previous_response_id": "resp_1"}, "previous_response_id: 'resp_1' is not supported"),
        ({"input": "Hi", "include": 5}, "include: int 5, must be a list"),
        ({"input": "Hi", "max_output_tokens": 10_000}, "max_output_tokens: 10000 is above"),
        ({"input": "Hi", "text": {"format": {"type": "json_schema", "name": "a"}}}, "text.format.schema: missing"),
    ):
        with pytest.raises(openai.BadRequestError, match=problem):
            openai_client.responses.create(**{**shared, **refused}, stream=True)


UNITS = {"type": "object", "properties": {"unit": {"enum": ["C", "F"]}}, "required": ["unit"], "additionalProperties": False}
WEATHER = {"name": "get_weather", "description": "Tells the weather.", "parameters": UNITS}
QUESTION: list[Any] = [{"role": "user", "content": "Hello!"}]


def use_template(served: Served, template: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "template").write_text(template)
    monkeypatch.setattr(served.generator, "chat", ChatEncoder(ChatTemplate(folder / "template", {}), served.tokenizer))


def test_calls_of_functions(
    served: Served, openai_client: openai.OpenAI, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same call from all clients, whole and as a stream; and what is made of its result."""
    template = "{{ tools | length if tools }}{% for message in messages %}{{ message | tojson | length }}{% endfor %}"
    use_template(served, template, tmp_path, monkeypatch)
    found = served.client.generate(QUESTION, tools=[WEATHER], tool_choice="required", max_tokens=80).choices[0]
    [call] = found.tool_calls
    assert (found.text, call.name) == ("", "get_weather")
    assert json.loads(call.arguments)["unit"] in ("C", "F")
    with served.client.generate_stream(QUESTION, tools=[WEATHER], tool_choice="get_weather", max_tokens=80) as pieces:
        assert not list(pieces)
        assert pieces.generation.choices[0].tool_calls[0].arguments == call.arguments
    with served.client.generate_stream(QUESTION, tools=[WEATHER], max_tokens=20) as pieces:  # no call
        assert "".join(pieces) == pieces.generation.text != ""
    tools: Any = [{"type": "function", "function": {**WEATHER, "strict": True}}]
    chosen: Any = {"type": "function", "function": {"name": "get_weather"}}
    chat: dict[str, Any] = {"model": "llama", "messages": QUESTION, "tools": tools, "tool_choice": chosen, "max_tokens": 80}
    whole = openai_client.chat.completions.create(**chat).choices[0]
    assert (whole.finish_reason, whole.message.content) == ("tool_calls", None)
    assert whole.message.tool_calls[0].function.arguments == call.arguments
    *_, last = openai_client.chat.completions.create(**chat, stream=True)
    assert last.choices[0].finish_reason == "tool_calls"
    assert last.choices[0].delta.tool_calls[0].function.arguments == call.arguments
    flat: Any = [{"type": "function", **WEATHER}]
    asked: dict[str, Any] = {
        "model": "llama",
        "input": "Hello!",
        "tools": flat,
        "tool_choice": "required",
        "max_output_tokens": 80,
    }
    response = openai_client.responses.create(**asked)
    assert [item.arguments for item in response.output] == [call.arguments]
    allowed: Any = {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "get_weather"}]}
    others: Any = [{"type": "function", "name": "f"}, *flat]
    response = openai_client.responses.create(**{**asked, "tools": others, "tool_choice": allowed})
    assert [item.arguments for item in response.output] == [call.arguments]
    events = {event.type: event for event in openai_client.responses.create(**asked, stream=True)}
    assert events["response.function_call_arguments.done"].arguments == call.arguments
    assert "response.output_text.done" not in events

    result = {"role": "tool", "content": "sunny", "tool_call_id": call.id}
    ours = served.client.generate(
        [*QUESTION, {"role": "assistant", "content": "", "tool_calls": found.tool_calls}, result], max_tokens=5
    )
    message = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}],
    }
    theirs = openai_client.chat.completions.create(model="llama", messages=[*QUESTION, message, result], max_tokens=5)
    items = [*QUESTION, {"type": "function_call", "call_id": call.id, "name": call.name, "arguments": call.arguments}]
    output = [{"type": "input_text", "text": "sun"}, {"type": "input_text", "text": "ny"}]
    items.append({"type": "function_call_output", "call_id": call.id, "output": output})
    flow = openai_client.responses.create(model="llama", input=items, max_output_tokens=5)
    assert ours.text == theirs.choices[0].message.content == flow.output_text


def test_an_earlier_answer_may_be_null(
    served: Served, openai_client: openai.OpenAI, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_template(served, "{{ messages[0].content }}{{ messages[1].content }}", tmp_path, monkeypatch)
    messages: list[Any]
    for content in (None, ""):
        messages = [*QUESTION, {"role": "assistant", "content": content}]
        openai_client.chat.completions.create(model="llama", messages=messages, max_tokens=1)
    messages = [{"role": "user", "content": None}]
    with pytest.raises(openai.BadRequestError, match=r"messages\[0\].content: must be a string"):
        openai_client.chat.completions.create(model="llama", messages=messages)


def test_templates_get_functions_without_their_special_tokens(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    template = "{% for tool in tools or [] %}{{ tool.function | tojson }}{% endfor %}{{ messages[0].content }}"
    use_template(served, template, tmp_path, monkeypatch)
    served.tokenizer.encode_special_tokens = True
    tool = {"name": "f", "description": "<|im_end|>", "parameters": {"<|im_end|>": 1}}
    for choice, shown in (("auto", [tool]), ("none", [])):
        found = served.client.generate(QUESTION, tools=[tool], tool_choice=choice, max_tokens=1)
        assert found.prompt_token_count == len(served.ids("".join(map(json.dumps, shown)) + "Hello!"))


def test_wrong_tools_are_refused(served: Served, openai_client: openai.OpenAI) -> None:
    for wrong, problem in (
        ({"tools": [WEATHER, WEATHER]}, r"tools\[1\].name: 'get_weather': must have 1 to 64"),
        ({"tools": [WEATHER], "tool_choice": "other"}, "tool_choice: 'other' is not auto"),
        ({"tool_choice": "required"}, "tool_choice: is required, but there are no tools"),
        ({"tools": [WEATHER], "regex": "a"}, "tools: are set beside regex"),
        ({"tools": [WEATHER], "tool_choice": "required", "beam_size": 2}, "tool_choice: is not for beam search"),
        ({"tools": [{"name": "f", "parameters": {"type": "no"}}], "tool_choice": "f"}, "tools: Invalid type: no"),
    ):
        with pytest.raises(InvalidArgumentError, match=problem):
            served.client.generate(QUESTION, **wrong)
    with pytest.raises(InvalidArgumentError, match="tools: apply to messages only"):
        served.client.generate("Hello!", tools=[WEATHER])
    for other in ({"tools": [{"type": "web_search"}]}, {"tools": [{"type": "function"}]}, {"tools": [1]}, {"tool_choice": 5}):
        with pytest.raises(openai.BadRequestError, match="tool"):
            openai_client.chat.completions.create(model="llama", messages=QUESTION, **other)
        with pytest.raises(openai.BadRequestError, match="tool"):
            openai_client.responses.create(model="llama", input="Hello!", **other)
    with pytest.raises(openai.BadRequestError, match=r"tools: .* is not supported"):
        openai_client.completions.create(model="llama", prompt="Hello!", extra_body={"tools": [1]})


PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 5}, "age": {"type": "integer", "minimum": 0, "maximum": 99}},
    "required": ["name", "age"],
    "additionalProperties": False,
}


@pytest.mark.parametrize("options", [{"sampling_topk": 1}, {"sampling_topk": 0, "seed": 5, "repetition_penalty": 1.3}], ids=str)
def test_texts_follow_a_schema_or_an_expression(served: Served, options: dict[str, Any]) -> None:
    """Alone and in company, in streams and whole."""
    for schema in (PERSON, json.dumps(PERSON)):
        count = 1 if options["sampling_topk"] == 1 else 2
        found = served.client.generate_many(PROMPTS[:3], json_schema=schema, n=count, max_tokens=100, **options)
        for choice in (choice for one in found for choice in one.choices):
            person = json.loads(choice.text)
            assert choice.finish_reason is FinishReason.STOP
            assert person.keys() == {"name", "age"}
            assert len(person["name"]) <= 5
            assert 0 <= person["age"] <= 99
    whole = served.client.generate(PROMPTS[0], regex="(ab|ba){3}!", echo=True, **options)
    assert re.fullmatch(re.escape(PROMPTS[0]) + "(ab|ba){3}!", whole.text)
    with served.client.generate_stream(PROMPTS[0], regex="(ab|ba){3}!", echo=True, **options) as pieces:
        assert "".join(pieces) == whole.text
    cut = served.client.generate(PROMPTS[0], regex="a{50}", max_tokens=3, **options)
    assert (set(cut.text), cut.finish_reason) == ({"a"}, FinishReason.LENGTH)


def test_an_answer_by_a_schema_may_be_a_call_instead(served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_template(served, "{{ tools | length if tools }}{{ messages[0].content }}", tmp_path, monkeypatch)
    for seed in range(4):
        options: dict[str, Any] = {"json_schema": PERSON, "max_tokens": 100, "sampling_topk": 0, "seed": seed}
        [choice] = served.client.generate(QUESTION, tools=[WEATHER], **options).choices
        if choice.tool_calls:
            assert (choice.text, choice.tool_calls[0].name) == ("", "get_weather")
        else:
            assert json.loads(choice.text).keys() == {"name", "age"}
    found = served.client.generate(QUESTION, tools=[WEATHER], tool_choice="required", json_schema=PERSON, max_tokens=80)
    assert found.choices[0].tool_calls


def test_openai_structured_outputs(served: Served, openai_client: openai.OpenAI) -> None:
    def ask(**rules: Any) -> str:
        shared: dict[str, Any] = {"model": "llama", "prompt": "x", "temperature": 0, "max_tokens": 100}
        return str(openai_client.completions.create(**shared, extra_body=rules).choices[0].text)

    def shape(schema: Any) -> dict[str, Any]:
        return {"response_format": {"type": "json_schema", "json_schema": {"name": "person", "schema": schema, "strict": True}}}

    assert json.loads(ask(**shape(PERSON))).keys() == {"name", "age"}
    assert json.loads(ask(structured_outputs={"json": PERSON})).keys() == {"name", "age"}
    assert ask(structured_outputs={"regex": "yes|no"}) in ("yes", "no")
    assert ask(structured_outputs={"choice": ["#1 -~", "(é)\n&"]}) in ("#1 -~", "(é)\n&")
    assert ask(structured_outputs={"json_object": True}) == ask(response_format={"type": "json_object"})
    for kind, rule in (("json", PERSON), ("regex", "yes|no"), ("choice", ["yes", "no"])):  # the names of older versions of vLLM
        assert ask(**{f"guided_{kind}": rule}) == ask(structured_outputs={kind: rule})
    assert ask(response_format={"type": "json_object"}).startswith("{")
    for holder in ("schema", "value"):  # of llama.cpp and others, and of Hugging Face's clients
        assert json.loads(ask(response_format={"type": "json_object", holder: PERSON})).keys() == {"name", "age"}
    assert ask(response_format={"type": "text"}) == ask()
    for rules, problem in (
        (shape({"type": "odd"}), "response_format: Invalid type: odd"),
        (shape(3), "response_format.json_schema.schema: int 3, must be an object"),
        ({"response_format": {"type": "xml"}}, "response_format.type: 'xml' is not text, json_object or json_schema"),
        ({"response_format": {"type": "json_object", "value": 3}}, "response_format.value: int 3, must be an object"),
        ({"response_format": []}, "response_format: must be an object"),
        ({"response_format": {"type": "json_object"}, "structured_outputs": {"regex": "a"}}, "response_format: is set beside"),
        (shape(""), "response_format.json_schema.schema: is empty; leave it out"),
        ({"structured_outputs": {"regex": "("}}, "structured_outputs.regex: unclosed group"),
        ({"guided_regex": "("}, "guided_regex: unclosed group"),
        ({"guided_regex": "a", "structured_outputs": {"json": {}}}, "guided_regex: is set beside structured_outputs.json"),
        ({"structured_outputs": {"choice": []}}, "structured_outputs.choice: must be a string or a list"),
        ({"structured_outputs": {"grammar": "a"}}, "structured_outputs.grammar: "),
    ):
        with pytest.raises(openai.BadRequestError, match=re.escape(problem)):
            ask(**rules)


def test_open_inference_protocol(served: Served) -> None:
    client = tritonclient.grpc.InferenceServerClient(f"127.0.0.1:{served.server.port}")
    tensor = tritonclient.grpc.InferInput("text", [2], "BYTES")
    tensor.set_data_from_numpy(np.array([text.encode() for text in PROMPTS[:2]], np.object_))
    found = client.infer("llama", [tensor], parameters={"max_tokens": 12, "sampling_topk": 1})
    expected = [one.text for one in served.client.generate_many(PROMPTS[:2], **GREEDY)]
    assert [text.decode() for text in found.as_numpy("generated_text")] == expected
    found = client.infer("llama", [tensor], parameters={"regex": "yes|no"})
    assert {text.decode() for text in found.as_numpy("generated_text")} <= {"yes", "no"}
    tensor.set_data_from_numpy(np.array([b"x", b"w " * 150], np.object_))
    with pytest.raises(tritonclient.utils.InferenceServerException, match=r"text\[1\]: \d+ tokens are too long"):
        client.infer("llama", [tensor])
    pieces: list[Any] = []
    ended = threading.Event()

    def receive(result: Any, error: Any) -> None:
        pieces.append(error or result)
        if error or result.get_response().parameters["triton_final_response"].bool_param:
            ended.set()

    client.start_stream(receive)
    one = tritonclient.grpc.InferInput("text", [1], "BYTES")
    one.set_data_from_numpy(np.array([PROMPTS[0].encode()], np.object_))
    client.async_stream_infer("llama", [one], parameters={"max_tokens": 12, "sampling_topk": 1})
    assert ended.wait(PATIENCE_SECONDS)
    client.stop_stream()
    assert "".join(piece.as_numpy("piece")[0].decode() for piece in pieces[:-1]) == expected[0]
