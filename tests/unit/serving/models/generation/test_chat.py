"""Chats as token ids: what templates may do, and special tokens in messages, which are text."""

from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as HuggingFaceTokenizer

from triptych_serving.errors import BundleError, InvalidInputError
from triptych_serving.models.generation.chat import ChatEncoder, ChatMessage, ChatTemplate
from triptych_serving.models.generation.tools import Tool, ToolCall
from triptych_serving.text.tokenizers import Tokenizer, make_tokenizer

PLAIN = "{% for message in messages %}<s>{{ message.content }}\n{% endfor %}"
WORDS = ["<unk>", "<s>", "a", "b", "\u2581a", "\u2581b", "<", "s", ">", "\n", "\u2581", "\U000f0000"]


def make(path: Path, template: str, **flags: Any) -> ChatEncoder:
    """Make an encoder of characters, with `<s>` as a special token of these flags."""
    return ChatEncoder(ChatTemplate(write(path, template), {}), tokenizer(**flags))


def write(path: Path, template: str) -> Path:
    file = path / "template"
    file.write_text(template, encoding="utf-8")
    return file


def tokenizer(scheme: str = "", lowercase: bool = False, **flags: Any) -> Tokenizer:
    made = HuggingFaceTokenizer(models.BPE({word: id for id, word in enumerate(WORDS)}, [("\u2581", "a")], unk_token="<unk>"))
    made.add_special_tokens([AddedToken("<s>", **flags), "<unk>"])
    if scheme:
        made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme)
    if lowercase:
        made.normalizer = normalizers.Lowercase()
    return make_tokenizer(made.to_str())


def tokens(encoder: ChatEncoder, *contents: str) -> str:
    return " ".join(WORDS[id] for id in encoder.encode([ChatMessage("user", content) for content in contents]))


@pytest.mark.parametrize(
    ("flags", "content", "expected"),
    [
        ({}, "a<s>b", "<s> a < s > b \n <s> b \n"),
        ({"rstrip": True}, " a<s>", "<s> a < s > \n <s> b \n"),
        ({"lstrip": True}, "<s>", "<s> < s > <s> b \n"),
        ({"scheme": "first"}, "a<s>", "<s> a < s > \n <s> b \n"),
        ({"scheme": "always"}, "a<s>", "<s> \u2581a < s > \n <s> \u2581 b \n"),
        ({"lowercase": True, "normalized": True}, "a<S>", "<s> a < s > \n <s> b \n"),
        ({}, "\U000f0000<s>", "<s> \U000f0000 < s > \n <s> b \n"),
    ],
)
def test_special_tokens_in_messages_are_text(tmp_path: Path, flags: dict[str, Any], content: str, expected: str) -> None:
    """The rest of the chat has the tokens that it has without them."""
    encoder = make(tmp_path, PLAIN, **flags)
    assert tokens(encoder, content, "b") == expected
    rest = tokens(encoder, "a", "b")
    assert rest.rpartition("<s>")[2] == expected.rpartition("<s>")[2]


def test_private_characters_may_run_out(tmp_path: Path) -> None:
    private = "".join(map(chr, range(0xF0000, 0x10FFFE)))
    with pytest.raises(InvalidInputError, match="too many different private characters"):
        make(tmp_path, PLAIN).encode([ChatMessage("user", f"<s>{private}")])


def test_the_tag_around_generated_text_changes_nothing(tmp_path: Path) -> None:
    template = "{% set x = 'b' %}{% generation %}{% set x = 'a' %}{{ messages[0].content }}{% endgeneration %}{{ x }}"
    assert tokens(make(tmp_path, template), "a") == "a b"


def test_tools_and_documents_are_none(tmp_path: Path) -> None:
    template = "{% if tools is none and documents is none %}a{% else %}b{% endif %}"
    assert tokens(make(tmp_path, template), "") == "a"


@pytest.mark.parametrize("special", [True, False])
def test_marks_of_calls_are_shown_in_answers_that_may_have_some(tmp_path: Path, special: bool) -> None:
    made = HuggingFaceTokenizer(models.BPE({"[ARGS]": 0, "<s>": 1, "a": 2}, []))
    made.add_tokens([AddedToken("[ARGS]", special=special, normalized=False), AddedToken("<s>", special=True)])
    encoder = ChatEncoder(
        ChatTemplate(write(tmp_path, "<s>{{ messages[0].content }}[ARGS]"), {}), make_tokenizer(made.to_str())
    )
    assert encoder.encode([ChatMessage("user", "a")]) == [1, 2, 0]
    assert encoder.call_decoder.decode([1, 2, 0]) == "a [ARGS]"


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("{% if tools %}a{% endif %}{{ messages[0].content }}{{ messages[0].tool_calls }}", "ab[{'"),
        ("{% if tools %}a{% endif %}{{ messages[0].content }}", 'ab\n{"name": "f", '),  # LFM2's first template
        # As Phi-4-mini's; functions in messages are not those of the request.
        ("{{ messages[0].content }}{{ messages[0]['tools'] }}", "You can call these functions:\n{"),
    ],
)
def test_functions_and_calls_that_a_template_does_not_know_become_texts(tmp_path: Path, template: str, expected: str) -> None:
    seen: list[str] = []
    encoder = make(tmp_path, template)
    encoder._ids = lambda _, text: seen.append(text) or []  # type: ignore[method-assign, func-returns-value]
    encoder.encode([ChatMessage("assistant", "b", (ToolCall("1", "f", "{}"),))], tools=[Tool("f")])
    assert seen[0].startswith(expected)


# As Qwen3's template, but shorter: only answers after the last question keep their thoughts.
THOUGHTS = """
{%- set ns = namespace(searching=true, last_query_index=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.searching and message.role == "user" and message.content is string
        and not(message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}
        {%- set ns.searching = false %}
        {%- set ns.last_query_index = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- set content = message.content %}
    {%- if (message.role == "user") or (message.role == "system" and loop.first) %}
        {{- message.role + ': ' + content + '\\n' }}
    {%- elif message.role == "assistant" %}
        {%- set thoughts = message.reasoning_content if message.reasoning_content is string else '' %}
        {%- if '</think>' in content %}
            {%- set thoughts = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {%- if loop.index0 > ns.last_query_index and (loop.last or (not loop.last and thoughts)) %}
            {{- 'assistant: <think>' + thoughts.strip('\\n') + '</think>' + content }}
        {%- else %}
            {{- 'assistant: ' + content }}
        {%- endif %}
        {%- if message.tool_calls %}{{- message.tool_calls | tojson }}{%- endif %}
        {{- '\\n' }}
    {%- elif message.role == "tool" %}
        {{- '' if loop.previtem.role == messages[loop.index0 - 1].role == "tool" else 'tool: ' }}
        {{- {"answer": content} | tojson }}
        {{- '\\n' if loop.last or messages[loop.index0 + 1].role != "tool" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- 'assistant: ' }}
    {%- if enable_thinking is defined and enable_thinking is false %}{{- '<think></think>' }}{%- endif %}
{%- endif %}"""


def test_a_template_may_look_at_other_messages_and_cut_their_texts(tmp_path: Path) -> None:
    answer = "<think>\nWhy?\n</think>\n\nSo."
    chat = [("system", "Be brief."), *[("user", "How?"), ("assistant", answer)] * 2, ("tool", "ä"), ("tool", "b")]
    rendered = ChatTemplate(write(tmp_path, THOUGHTS), {}).render([ChatMessage(*each) for each in chat])
    first, second = "assistant: So.\n", "assistant: <think>Why?</think>So.\n"
    tools = 'tool: {"answer": "ä"}{"answer": "b"}\n'
    assert rendered == f"system: Be brief.\nuser: How?\n{first}user: How?\n{second}{tools}assistant: "


# As Gemma 3's template, but shorter: the system message is a prefix of the first question.
TURNS = """{{ bos_token }}
{%- if messages[0]['role'] == 'system' -%}
    {%- if messages[0]['content'] is string -%}{%- set prefix = messages[0]['content'] + '\n\n' -%}
    {%- else -%}{%- set prefix = messages[0]['content'][0]['text'] + '\n\n' -%}{%- endif -%}
    {%- set loop_messages = messages[1:] -%}
{%- else -%}
    {%- set prefix = "" -%}
    {%- set loop_messages = messages -%}
{%- endif -%}
{%- for message in loop_messages -%}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) -%}{{ raise_exception("roles must alternate") }}{%- endif -%}
    {%- set role = "model" if message['role'] == 'assistant' else message['role'] -%}
    {{ '<start>' + role + '\n' + (prefix if loop.first else "") }}
    {%- if message['content'] is string -%}{{ message['content'] | trim }}
    {%- elif message['content'] is iterable -%}
        {%- for item in message['content'] -%}{{ item['text'] | trim }}{%- endfor -%}
    {%- else -%}{{ raise_exception("Invalid content type") }}{%- endif -%}
    {{ '<end>\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<start>model\n' }}{%- endif -%}"""


def test_a_template_may_move_the_system_message_and_demand_turns(tmp_path: Path) -> None:
    template = ChatTemplate(write(tmp_path, TURNS), {"bos_token": "<s>"})
    chat = [ChatMessage("user", " How? \n"), ChatMessage("assistant", "So."), ChatMessage("user", "Why?")]
    turns = "How?<end>\n<start>model\nSo.<end>\n<start>user\nWhy?<end>\n<start>model\n"
    assert template.render(chat) == f"<s><start>user\n{turns}"
    assert template.render([ChatMessage("system", "Be brief."), *chat]) == f"<s><start>user\nBe brief.\n\n{turns}"
    with pytest.raises(InvalidInputError, match="roles must alternate"):
        template.render(chat[1:])


@pytest.mark.parametrize(
    "template",
    [
        "{% macro again() %}{{ again() }}{% endmacro %}{{ again() }}",
        "{{ messages|dictsort }}",
        "{{ '\\ud800' }}",
        "{{ raise_exception('no') }}",
        "{{ 1 // 0 }}",
    ],
)
def test_any_error_of_a_template_is_a_rejection(tmp_path: Path, template: str) -> None:
    with pytest.raises(InvalidInputError, match="messages: the model's chat template rejects them: "):
        make(tmp_path, template).encode([ChatMessage("user", "a")])


def test_an_endless_template_is_stopped(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="takes too long"):
        make(tmp_path, "{% for a in range(99999) %}{% for b in range(99999) %}a{% endfor %}{% endfor %}").encode([])


def test_a_file_that_is_no_template_is_a_fault_of_the_bundle(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="not a chat template: "):
        ChatTemplate(write(tmp_path, "{% if %}"), {})
