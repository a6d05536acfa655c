"""Functions that the answer of a chat may call: what the model is told of them, and the calls in its texts."""

import ast
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
# Calls as models write them: between such marks, of which some models have only the first one, or as the whole text.
STARTS = (
    "<tool_call>",  # Qwen, Hermes, SmolLM3, Granite 4
    "<tool_calls>",  # HunYuan
    "<toolcall>",  # Nemotron
    "<function_calls>",  # OLMo 3
    "<|tool_call|>",  # Granite 3, Phi-4-mini
    "<|tool_call_start|>",  # LFM2
    "<|tools_prefix|>",  # Apertus
    "<|START_ACTION|>",  # Command R7B
    "<|python_tag|>",  # Llama
    "[TOOL_CALLS]",  # Mistral
)
ENDS = (
    *("</tool_call>", "</tool_calls>", "</toolcall>", "</function_calls>"),
    *("<|/tool_call|>", "<|tool_call_end|>", "<|tools_suffix|>", "<|END_ACTION|>"),
)
MARKS = (*STARTS, *ENDS, "[CALL_ID]", "[ARGS]")  # the last two are Mistral's, inside a call
START = re.compile("|".join(map(re.escape, STARTS)))
MARKED = re.compile(rf"(?:{START.pattern})(.*?)(?={START.pattern}|{'|'.join(map(re.escape, ENDS))}|\Z)", re.DOTALL)
BEGINNINGS = ("{", "[", "`")  # of texts that may be calls, beside names of functions
BETWEEN = re.compile(r"(?:```(?:json)?|[\s;,`])*+")
NAMED = re.compile(rf"([\w.-]{{1,64}})(?:\[CALL_ID\]\w*)?(?:\[ARGS\])?{BETWEEN.pattern}(?=\{{)", re.ASCII)
PYTHON = re.compile(r"\s*\[?\s*[\w.]{1,64}\(", re.ASCII)
# Members of a schema that say nothing about arguments beside `properties`: clients list none for functions without arguments.
ALONE = {"$schema", "title", "description", "type", "properties", "required"}
CONSTANTS = {"true": True, "false": False, "null": None}  # JSON's, in calls that are Python otherwise
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
    parameters: str = ""  # JSON schema of an object; empty: there are none

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
    """Return the JSON schema of a call of the chosen function, or of any of them if one is required."""
    return _schema_of_calls([tool for tool in tools if choice in (REQUIRED, tool.name)])


def call_or_json(tools: Sequence[Tool], schema: str) -> str:
    """Return the JSON schema of a call or of JSON by another schema; that one as it is if it cannot be read."""
    try:
        return _schema_of_calls(tools, json.loads(schema))
    except (ValueError, RecursionError):
        return schema


def _schema_of_calls(tools: Sequence[Tool], *others: Any) -> str:
    if len(tools) == 1 and not others:
        return json.dumps(_call_schema(tools[0], "#"))
    calls = [_call_schema(tool, f"#/anyOf/{index}") for index, tool in enumerate(tools)]
    return json.dumps({"anyOf": [*calls, *(_moved(other, f"#/anyOf/{len(calls)}") for other in others)]})


def _call_schema(tool: Tool, place: str) -> dict[str, Any]:
    arguments = _moved(tool.schema, f"{place}/properties/arguments")
    if arguments.get("properties") == {} and not arguments.get("required") and arguments.keys() <= ALONE:
        arguments["additionalProperties"] = False
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
    """Return the text before the calls in a text, and the calls; the text as it is if a call in it cannot be read.

    Args:
        names: of the functions.
    """
    found: list[ToolCall] = []
    try:
        for part in MARKED.findall(text) or [text]:
            for name, arguments in _python_calls(part) if PYTHON.match(part) else _json_calls(part):
                if name not in names or not isinstance(arguments, dict):
                    return text, ()
                written = json.dumps(arguments, ensure_ascii=False, allow_nan=False)
                found.append(ToolCall(secrets.token_hex(5)[1:], name, written))
    except (ValueError, KeyError, TypeError, AttributeError, SyntaxError, RecursionError, MemoryError):
        return text, ()
    return before_calls(text, names) if found else text, tuple(found)


def before_calls(text: str, names: Collection[str]) -> str:
    """Return the part of a growing text that no call can begin in, without white space at its end."""
    begun = text.lstrip()
    if begun[:1] in ("", *BEGINNINGS) or any(_may_call(begun, name) for name in names):
        return ""
    found = START.search(text)
    return text[: found.start() if found else len(text) - max(overlap(text, mark) for mark in STARTS)].rstrip()


def _may_call(text: str, name: str) -> bool:
    """Return True if a text may begin with a call that has the function's name first."""
    return name.startswith(text) or (text.startswith(name) and text[len(name) :].lstrip()[:1] in ("", "(", *BEGINNINGS))


def overlap(text: str, word: str) -> int:
    """Return the length of the longest beginning of `word`, but not all of it, with which the text ends."""
    return next((size for size in range(min(len(word) - 1, len(text)), 0, -1) if text.endswith(word[:size])), 0)


def _json_calls(text: str) -> Iterator[tuple[Any, Any]]:
    """Yield names and arguments of calls: JSON objects, lists of them, or names before JSON. Raises ValueError and others."""
    place, decoder = _skipped(text, 0), json.JSONDecoder()
    while place < len(text):
        if named := NAMED.match(text, place):
            arguments, place = decoder.raw_decode(text, named.end())
            yield named[1], arguments
        else:
            value, place = decoder.raw_decode(text, place)
            yield from map(_named, map(_flat, value) if isinstance(value, list) else [value])
        place = _skipped(text, place)


def _flat(call: dict[str, Any]) -> dict[str, Any]:
    """Return a call of a list with its members, also of one in the form {name: arguments}."""
    return {"name": next(iter(call)), "arguments": next(iter(call.values()))} if len(call) == 1 and "name" not in call else call


def _named(call: dict[str, Any]) -> tuple[Any, Any]:
    name = call["tool_name"] if "tool_name" in call else call["name"]
    arguments = call.get("arguments", call.get("parameters", {}))
    return name, json.loads(arguments) if isinstance(arguments, str) else arguments


def _python_calls(text: str) -> Iterator[tuple[str, dict[str | None, Any]]]:
    """Yield names and arguments of calls as in Python, or of a list of them. Raises SyntaxError, ValueError and others."""
    for statement in ast.parse(text.strip()).body:
        value: Any = statement
        calls: Sequence[Any] = value.value.elts if isinstance(value.value, ast.List) else [value.value]
        for call in calls:
            if call.args or any(one.arg is None for one in call.keywords):
                raise ValueError("arguments without names")
            yield ast.unparse(call.func), {one.arg: ast.literal_eval(_Constants().visit(one.value)) for one in call.keywords}


class _Constants(ast.NodeTransformer):
    """Replaces the names of JSON's constants by their values."""

    def visit_Name(self, node: ast.Name) -> ast.Constant:
        return ast.Constant(CONSTANTS[node.id])


def _skipped(text: str, place: int) -> int:
    found = BETWEEN.match(text, place)
    return found.end() if found else place


def with_calls(message: Mapping[str, Any]) -> str:
    """Return the content of a message, and its calls as JSON."""
    calls = (json.dumps(call["function"], ensure_ascii=False) for call in message.get("tool_calls", ()))
    return "\n".join(filter(None, (message["content"], *calls)))


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
        role, content = message["role"], with_calls(message)
        if role == "tool":
            name = message.get("name") or called.get(message.get("tool_call_id", ""), "the function")
            role, content = "user", f"Result of {name}: {content}"
        plain.append({"role": role, "content": content})
    if functions and plain:
        described = "\n".join(json.dumps(each["function"], ensure_ascii=False) for each in functions)
        plain[0]["content"] = INTRODUCTION.format(functions=described) + plain[0]["content"]
    return plain
