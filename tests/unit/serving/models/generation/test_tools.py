"""Functions that answers may call: what is read of a text, what a forced call looks like, what templates get."""

import json
from itertools import pairwise
from typing import Any

import jsonschema
import pytest

from triptych_serving.errors import InvalidInputError
from triptych_serving.models.generation.chat import ChatMessage, template_messages
from triptych_serving.models.generation.tools import (
    MAX_TOOLS,
    Tool,
    ToolCall,
    before_calls,
    call_or_json,
    check_tools,
    find_calls,
    forced_call,
    plain_messages,
    read_object,
)

CITY = '{"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}'
ZONE = '{"type": "object", "properties": {"zone": {"$ref": "#/$defs/Z"}}, "$defs": {"Z": {"enum": ["UTC", "CET"]}}}'
WEATHER, TIME = Tool("get_weather", "The weather.", CITY), Tool("get_time", "", ZONE)
NAMES = {"get_weather", "get_time"}
CALL = '{"name": "get_weather", "arguments": {"city": "Köln"}}'


@pytest.mark.parametrize(
    ("text", "content"),
    [
        (f"<tool_call>\n{CALL}\n</tool_call>", ""),
        (f"I will look.\n<tool_call>{CALL}", "I will look."),  # the end is a special token
        (CALL, ""),
        (f" {CALL} ", ""),
        (f"[{CALL}]", ""),
        (f"[TOOL_CALLS] [{CALL}]", ""),
        (f"<|python_tag|>{CALL}", ""),
        (f"```json\n{CALL}\n```", ""),
        ('{"name": "get_weather", "parameters": {"city": "Köln"}}', ""),
        ('{"type": "function", "name": "get_weather", "arguments": "{\\"city\\": \\"Köln\\"}"}', ""),
        (f"<|tool_call|>[{CALL}]<|/tool_call|>", ""),
        (f"<toolcall> {CALL} </toolcall>", ""),
        (f"I will look.[TOOL_CALLS][{CALL}]", "I will look."),
        ('[TOOL_CALLS]get_weather[ARGS]{"city": "Köln"}', ""),
        ('I will look.[TOOL_CALLS]get_weather[CALL_ID]123456789[ARGS]{"city": "Köln"}', "I will look."),
        ('get_weather\n{"city": "Köln"}', ""),  # GLM-4
        ('<tool_call>get_weather\n```json\n{"city": "Köln"}\n```</tool_call>', ""),
        ('<|tool_call_start|>[get_weather(city="Köln")]<|tool_call_end|>I am looking.', ""),
        ("[get_weather(city='Köln')]", ""),
        ("<function_calls>\nget_weather(city='Köln')\n</function_calls>", ""),
        ('Plan.<|START_ACTION|>[\n{"tool_call_id": "0", "tool_name": "get_weather", "parameters": {"city": "Köln"}}]', "Plan."),
        ('<|tools_prefix|>[{"get_weather": {"city": "Köln"}}]<|tools_suffix|>', ""),
    ],
)
def test_a_call_is_found_in_what_models_write(text: str, content: str) -> None:
    found, [call] = find_calls(text, NAMES)
    assert (found, call.name, json.loads(call.arguments)) == (content, "get_weather", {"city": "Köln"})
    assert len(call.id) == 9  # as templates of Mistral want them
    assert call.id.isalnum()


@pytest.mark.parametrize(
    "text",
    [
        f"<tool_call>{CALL}</tool_call>\n<tool_call>{CALL}</tool_call>",
        f"[{CALL}, {CALL}]",
        f"{CALL}; {CALL}",
        "[TOOL_CALLS]get_time[ARGS]{}[TOOL_CALLS]get_time[ARGS]{}",
        "[get_time(), get_weather(city='Köln')]",
        "get_time()\nget_time(zone='UTC')",
    ],
)
def test_several_calls_have_ids_of_their_own(text: str) -> None:
    content, calls = find_calls(text, NAMES)
    assert content == ""
    assert len({call.id for call in calls}) == 2


@pytest.mark.parametrize(
    "text",
    [
        "",
        "It is sunny.",
        "{",
        "{}",
        "[]",
        " ",
        "```",
        '{"name": "get_weather", "arguments": {"city": NaN}}',
        "[]x",
        "17",
        '"get_weather"',
        CALL[:-1],
        CALL + " and more",
        '{"name": "other", "arguments": {}}',
        '{"name": "get_weather", "arguments": [1]}',
        '{"name": "get_weather", "arguments": "city"}',
        '{"name": ["get_weather"], "arguments": {}}',
        f"<tool_call>{CALL}</tool_call><tool_call>{{</tool_call>",
        "<tool_call></tool_call>",
        "[" * 100_000,
        "get_weather",
        "get_weather is a function",
        "get_weather {",
        "get_weather('Köln')",
        "get_weather(**{'city': 'Köln'})",
        "get_weather(city=town)",
        "get_weather(city=open('x'))",
        "get_weather(city=" + "-" * 100_000 + "1)",
        "get_weather(city={1, 2})",
        "get_weather(city='Köln') and more",
        "[get_weather]",
        "other(x=1)",
        "other{}",
        '[{"other": {}}]',
        '{"get_weather": {}}',  # may be an answer by a schema
    ],
)
def test_other_texts_stay(text: str) -> None:
    assert find_calls(text, NAMES) == (text, ())


@pytest.mark.parametrize("choice", ["get_time", "required"])
def test_a_forced_call_has_the_schema_of_its_function(choice: str) -> None:
    schema = json.loads(forced_call([WEATHER, TIME], choice))
    jsonschema.validate({"name": "get_time", "arguments": {"zone": "UTC"}}, schema)  # a reference that fits its new place
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"name": "get_time", "arguments": {"zone": "CEST"}}, schema)
    weather: dict[str, Any] = {"name": "get_weather", "arguments": {"city": "Köln"}}
    assert jsonschema.Draft202012Validator(schema).is_valid(weather) is (choice == "required")


@pytest.mark.parametrize(
    ("parameters", "takes_any"),
    [
        ("", False),
        ('{"type": "object", "properties": {}, "required": []}', False),  # as clients describe functions without arguments
        ('{"type": "object"}', True),
        ('{"properties": {}, "additionalProperties": {}}', True),
        ('{"properties": {}, "patternProperties": {"n": {}}}', True),
    ],
)
def test_a_forced_call_has_no_argument_if_none_are_listed(parameters: str, takes_any: bool) -> None:
    valid = jsonschema.Draft202012Validator(json.loads(forced_call([Tool("now", "", parameters)], "now"))).is_valid
    assert valid({"name": "now", "arguments": {}})
    assert valid({"name": "now", "arguments": {"n": 1}}) is takes_any


def test_json_by_a_schema_may_be_a_call_instead() -> None:
    schema = json.loads(
        call_or_json(
            [WEATHER, TIME], '{"type": "object", "properties": {"a": {"$ref": "#/$defs/A"}}, "$defs": {"A": {"type": "null"}}}'
        )
    )
    valid = jsonschema.Draft202012Validator(schema).is_valid
    assert valid({"a": None})
    assert not valid({"a": 1})
    assert valid({"name": "get_time", "arguments": {"zone": "UTC"}})
    assert call_or_json([TIME], "{") == "{"


@pytest.mark.parametrize(
    ("tools", "choice", "field"),
    [
        ([Tool("a b")], "", "tools[0].name"),
        ([Tool("auto")], "", "tools[0].name"),
        ([WEATHER, WEATHER], "", "tools[1].name"),
        ([Tool("f", parameters="[]")], "", "tools[0].parameters"),
        ([Tool("f", parameters="{")], "", "tools[0].parameters"),
        ([Tool("f", parameters='{"a": ' * 99 + "1" + "}" * 99)], "", "tools[0].parameters"),
        ([Tool(f"f{index}") for index in range(MAX_TOOLS + 1)], "", "tools"),
        ([WEATHER], "other", "tool_choice"),
        ([], "required", "tool_choice"),
    ],
)
def test_wrong_tools_are_named(tools: list[Tool], choice: str, field: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        check_tools(tools, choice)
    assert caught.value.field == field


def test_json_may_be_deep_but_not_endless() -> None:
    read_object('{"a": ' * 60 + "1" + "}" * 60)
    with pytest.raises(ValueError, match="more than 64 levels"):
        read_object('{"a": ' * 100_000)


def test_messages_for_templates_with_tools() -> None:
    call = ToolCall("123456789", "get_weather", '{"city": "Köln"}')
    messages = [ChatMessage("assistant", "", (call,)), ChatMessage("tool", "sunny", (), call.id, "get_weather")]
    assert template_messages([*messages, ChatMessage("user", "Hi", name="Anna")]) == [
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [
                {"id": call.id, "type": "function", "function": {"name": "get_weather", "arguments": {"city": "Köln"}}}
            ],
        },
        {"role": "tool", "content": "sunny", "tool_call_id": call.id, "name": "get_weather"},
        {"role": "user", "content": "Hi"},
    ]
    with pytest.raises(InvalidInputError, match=r"messages\[0\].tool_calls\[0\].arguments: must be a JSON object"):
        template_messages([ChatMessage("assistant", "", (ToolCall("1", "f", "[]"),))])


def test_messages_for_templates_without_tools() -> None:
    call = ToolCall("1", "get_weather", '{"city": "Köln"}')
    given = [ChatMessage("user", "Weather?"), ChatMessage("assistant", "", (call,)), ChatMessage("tool", "sunny", (), "1")]
    first, second, third = plain_messages(template_messages(given), [WEATHER.describe()])
    assert '"name": "get_weather", "description": "The weather."' in first["content"]
    assert first["content"].endswith("\n\nWeather?")
    assert find_calls(second["content"], NAMES)[1][0].name == "get_weather"
    assert third == {"role": "user", "content": "Result of get_weather: sunny"}


def test_a_growing_text_is_shown_up_to_where_a_call_may_begin() -> None:
    text = f"I look <here>.  \n<tool_call>{CALL}"
    shown = [before_calls(text[:size], NAMES) for size in range(len(text) + 1)]
    assert all(later.startswith(earlier) for earlier, later in pairwise(shown))
    assert shown[-1] == find_calls(text, NAMES)[0] == "I look <here>."
    assert before_calls("I look <tool_", NAMES) == "I look"
    assert before_calls("<think>I look", NAMES) == "<think>I look"
    assert before_calls("get_weather tells", NAMES) == "get_weather tells"
    beginnings = ("", " ", CALL[:9], "[TOOL", "<tool", "```", "get_wea", "get_weather", "get_weather (", "get_weather[AR")
    assert {before_calls(beginning, NAMES) for beginning in beginnings} == {""}


def test_constants_in_calls_as_in_python_may_be_those_of_json() -> None:
    _, [call] = find_calls("[get_time(a=true, b=[None, {'c': false}], d=-1.5, e=null)]", NAMES)
    assert json.loads(call.arguments) == {"a": True, "b": [None, {"c": False}], "d": -1.5, "e": None}
