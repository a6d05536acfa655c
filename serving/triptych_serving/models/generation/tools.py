"""Functions that the answer of a chat may call: what the model is told of them, and the calls in its texts."""

import json
import re
import secrets
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from triptych_serving.errors import InvalidInputError

MAX_TOOLS = 128
NAME = re.compile(r"[\w.-]{1,64}", re.ASCII)
MOST_LEVELS = 64
TOO_DEEP = f"more than {MOST_LEVELS} levels of lists and objects"
AUTO, NONE, REQUIRED = "auto", "none", "required"
# Calls as models write them: between these tags (Hermes, Qwen), or JSON alone with such a mark before it (Mistral, Llama).
TAG = "<tool_call>"
TAGGED = re.compile(rf"{TAG}(.*?)(?:</tool_call>|\Z)", re.DOTALL)
BEGINNINGS = ("{", "[", "<", "`")  # of texts that may be calls
MARK = re.compile(r"\s*(?:\[TOOL_CALLS\]|<\|tool_call\|>|<\|python_tag\|>|```(?:json)?)?")
BETWEEN = re.compile(r"[\s;,`]*")
# For templates that know no tools.
INTRODUCTION = """You can call these functions:
{functions}
To call one, answer with JSON alone: {{"name": NAME, "arguments": {{...}}}}. Otherwise answer with a text.

"""


@dataclass(frozen=True)
class Tool:
    """A function."""

    name: str
    description: str = ""
    parameters: str = ""  # JSON schema of an object; empty: any

    @cached_property
    def schema(self) -> dict[str, Any]:
        """The schema of the arguments. Raises ValueError: it is no JSON object."""
        return read_object(self.parameters or '{"type": "object", "properties": {}}')

    def describe(self) -> dict[str, Any]:
        """Describe the function as templates expect it."""
        function = {"name": self.name, "description": self.description, "parameters": self.schema}
        return {"type": "function", "function": function}


@dataclass(frozen=True)
class ToolCall:
    """A call of a function."""

    id: str
    name: str
    arguments: str  # JSON object


def read_object(text: str) -> dict[str, Any]:
    """Parse a JSON object. Raises ValueError: it is something else, or nested too deeply."""
    try:
        value = json.loads(text)
    except RecursionError as error:
        raise ValueError(TOO_DEEP) from error
    if not isinstance(value, dict):
        raise ValueError("it is none")
    level: list[Any] = [value]
    for _ in range(MOST_LEVELS):
        level = [
            each for one in level if isinstance(one, list | dict) for each in (one.values() if isinstance(one, dict) else one)
        ]
    if level:
        raise ValueError(TOO_DEEP)
    return value


def check_tools(tools: Sequence[Tool], choice: str) -> None:
    """Check functions and the choice among them.

    Raises:
        InvalidInputError: there are too many, two have one name, or a name, a schema or the choice is wrong.
    """
    if len(tools) > MAX_TOOLS:
        raise InvalidInputError("tools", f"{len(tools):,} are too many, at most {MAX_TOOLS} are allowed")
    names: set[str] = set()
    for index, tool in enumerate(tools):
        if not NAME.fullmatch(tool.name) or tool.name in (AUTO, NONE, REQUIRED, *names):
            problem = (
                "must have 1 to 64 letters, digits and _, -, ., and be another one than the others, auto, none and required"
            )
            raise InvalidInputError(f"tools[{index}].name", f"{tool.name[:80]!r}: {problem}")
        names.add(tool.name)
        try:
            _ = tool.schema
        except ValueError as error:
            raise InvalidInputError(f"tools[{index}].parameters", f"must be a JSON schema of an object: {error}") from error
    if choice == REQUIRED and not tools:
        raise InvalidInputError("tool_choice", "is required, but there are no tools")
    if choice not in ("", AUTO, NONE, REQUIRED, *names):
        raise InvalidInputError("tool_choice", f"{choice[:80]!r} is not auto, none, required or the name of one of the tools")


def forced_call(tools: Sequence[Tool], choice: str) -> str:
    """Return the JSON schema of a call that must be made; empty if the model decides."""
    if choice in ("", AUTO, NONE):
        return ""
    able = [tool for tool in tools if choice in (REQUIRED, tool.name)]
    if len(able) == 1:
        return json.dumps(_call_schema(able[0], "#"))
    return json.dumps({"anyOf": [_call_schema(tool, f"#/anyOf/{index}") for index, tool in enumerate(able)]})


def _call_schema(tool: Tool, place: str) -> dict[str, Any]:
    arguments = _moved(tool.schema, f"{place}/properties/arguments")
    properties = {"name": {"const": tool.name}, "arguments": arguments}
    return {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}


def _moved(schema: Any, place: str) -> Any:
    """Return a schema whose references to itself fit where it stands in another one."""
    if isinstance(schema, list):
        return [_moved(each, place) for each in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: f"{place}{value[1:]}" if key == "$ref" and isinstance(value, str) and value[:1] == "#" else _moved(value, place)
        for key, value in schema.items()
    }


def find_calls(text: str, names: Collection[str]) -> tuple[str, tuple[ToolCall, ...]]:
    """Return a text without the calls in it, and the calls; the text as it is if a call in it cannot be read.

    Args:
        names: of the functions.
    """
    tagged = TAGGED.findall(text)
    found: list[ToolCall] = []
    try:
        for part in tagged or [MARK.sub("", text, count=1)]:
            for call in _values(part):
                arguments = call.get("arguments", call.get("parameters", {}))
                arguments = json.loads(arguments) if isinstance(arguments, str) else arguments
                if call["name"] not in names or not isinstance(arguments, dict):
                    return text, ()
                written = json.dumps(arguments, ensure_ascii=False, allow_nan=False)
                found.append(ToolCall(secrets.token_hex(5)[1:], call["name"], written))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return text, ()
    return before_calls(text) if found else text, tuple(found)


def before_calls(text: str) -> str:
    """Return the part of a growing text that no call can begin in, without white space at its end."""
    if text.lstrip()[:1] in ("", *BEGINNINGS):
        return ""
    place = text.find(TAG)
    return text[: place if place >= 0 else len(text) - overlap(text, TAG)].rstrip()


def overlap(text: str, word: str) -> int:
    """Return the length of the longest beginning of `word`, but not all of it, with which the text ends."""
    return next((size for size in range(min(len(word) - 1, len(text)), 0, -1) if text.endswith(word[:size])), 0)


def _values(text: str) -> Iterator[Any]:
    """Yield the JSON values of a text, and those in lists. Raises ValueError: there is something else."""
    place, decoder = _skipped(text, 0), json.JSONDecoder()
    while place < len(text):
        value, place = decoder.raw_decode(text, place)
        yield from value if isinstance(value, list) else [value]
        place = _skipped(text, place)


def _skipped(text: str, place: int) -> int:
    found = BETWEEN.match(text, place)
    return found.end() if found else place


def plain_messages(messages: Sequence[Mapping[str, Any]], functions: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return messages for a template that knows no tools: the first describes them, calls and their results are texts.

    Args:
        messages: as for a template.
        functions: as `Tool.describe` makes them.
    """
    plain, called = [], dict[str, str]()
    for message in messages:
        calls = message.get("tool_calls", ())
        called |= {call["id"]: call["function"]["name"] for call in calls}
        written = (json.dumps(call["function"], ensure_ascii=False) for call in calls)
        role, content = message["role"], "\n".join(filter(None, (message["content"], *written)))
        if role == "tool":
            name = message.get("name") or called.get(message.get("tool_call_id", ""), "the function")
            role, content = "user", f"Result of {name}: {content}"
        plain.append({"role": role, "content": content})
    if functions and plain:
        described = "\n".join(json.dumps(each["function"], ensure_ascii=False) for each in functions)
        plain[0]["content"] = INTRODUCTION.format(functions=described) + plain[0]["content"]
    return plain
