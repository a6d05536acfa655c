"""Text generation: results, and its entries in the table of unary calls."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

from triptych.v1 import text_generation_pb2 as pb
from triptych_client import arguments as named
from triptych_client.messages import fill
from triptych_client.results import FinishReason, Served
from triptych_client.tasks import UnaryTask, method_of

MEMBERS = frozenset(pb.ChatMessage.DESCRIPTOR.fields_by_name)  # of a message

Prompt: TypeAlias = str | Sequence[Mapping[str, Any]]
"""A text to continue, or a chat: messages such as `{"role": "user", "content": "Hello!"}`. With `tools`, messages may also have
`tool_calls`, those of an earlier choice, or `tool_call_id` and `name`."""


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """A token with its log-probability, the natural logarithm."""

    token: str
    """U+FFFD for a part of a character, whose bytes are in `bytes`."""
    bytes: bytes
    id: int
    logprob: float | None
    """None for the first token of an echoed prompt."""
    top: "tuple[TokenLogprob, ...]"
    """The likeliest tokens at this position, best first."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call of a function, which the caller makes."""

    id: str
    """For `tool_call_id` of the message with the result."""
    name: str
    arguments: str
    """A JSON object."""


@dataclass(frozen=True, slots=True)
class GenerationChoice:
    """One generated text."""

    text: str
    finish_reason: FinishReason
    stop_sequence: str
    """The stop sequence that ended the text; empty if none did."""
    token_count: int
    score: float | None
    """Only with `return_scores`."""
    tokens: tuple[TokenLogprob, ...]
    """Only with `top_logprobs`."""
    tool_calls: tuple[ToolCall, ...] = ()
    """Calls of `tools`, which are not in the text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation(Served):
    """The results of one prompt."""

    choices: tuple[GenerationChoice, ...]
    """As many as `n`; hypotheses of a beam search best first."""
    prompt_token_count: int
    cached_token_count: int
    """Number of the prompt's tokens that were in the server's prefix cache."""

    @property
    def text(self) -> str:
        """The text of the first choice."""
        return self.choices[0].text

    @property
    def finish_reason(self) -> FinishReason:
        """Why the first choice ended."""
        return self.choices[0].finish_reason


GENERATE = UnaryTask(
    *method_of(pb, "TextGenerationService", "Generate"),
    name="generate_many",
    arguments=named.GenerateArguments,
    result=Generation,
    inputs="prompts",
    results="generations",
    filled="choices",
    takes="prompt",
)
GENERATE_STREAM = GENERATE.using(*method_of(pb, "TextGenerationService", "GenerateStream"))


def request_for(task: UnaryTask[Generation], prompt: Prompt, arguments: Mapping[str, Any]) -> Any:
    """Make the request for one prompt or chat. Raises TypeError if it is neither."""
    if tools := arguments.get("tools"):
        arguments = {**arguments, "tools": [_function(tool) for tool in tools]}
    if isinstance(prompt, str):
        return task.request_with([prompt], arguments)
    takes = "generate takes a text, or messages with the texts role and content"
    if isinstance(prompt, bytes | Mapping) or not isinstance(prompt, Iterable):
        raise TypeError(f"{takes}; the prompt is of type {type(prompt).__name__}")
    messages = list(prompt)
    for index, message in enumerate(messages):
        is_message = isinstance(message, Mapping) and {"role", "content"} <= message.keys() <= MEMBERS
        if not is_message or not all(isinstance(value, str) for name, value in message.items() if name != "tool_calls"):
            raise TypeError(f"{takes}; message {index} is {message!r:.80}")
    request = task.request_with([], arguments)
    request.messages.extend(fill(pb.ChatMessage, _with_calls(message)) for message in messages)
    return request


def _function(tool: Mapping[str, Any]) -> dict[str, Any]:
    """Return the description of a function; in OpenAI's API it is a member, and has members for which there are no fields."""
    function = tool.get("function", tool)
    return {name: function[name] for name in pb.Tool.DESCRIPTOR.fields_by_name if name in function}


def _with_calls(message: Mapping[str, Any]) -> Mapping[str, Any]:
    calls = [asdict(call) if isinstance(call, ToolCall) else call for call in message.get("tool_calls", ())]
    return {**message, "tool_calls": calls}
