"""Chat templates: Jinja templates of checkpoints that turn messages into a prompt, rendered in a sandbox."""

import json
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any

from jinja2 import Template, TemplateError, meta, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from triptych_serving.errors import BundleError, InvalidInputError
from triptych_serving.models.generation.tools import MARKS, Tool, ToolCall, plain_messages, read_object, with_calls
from triptych_serving.text.tokenizers import Tokenizer, make_tokenizer

ROLES = ("system", "developer", "user", "assistant", "tool")
MAX_MESSAGES = 1_024
MAX_TEMPLATE_CHARACTERS = 1 << 20
RENDER_SECONDS = 1.0
GROWTH = 16  # characters that a template may add to each of the messages', and to a chat
SPARE_CHARACTERS = 65_536
# Private characters, which stand for special tokens in messages while the template is rendered.
STAND_INS = range(0xF0000, 0x10FFFE)
# Variables of transformers that templates test for None.
ABSENT: Mapping[str, None] = {"tools": None, "documents": None}
# Special tokens that mark calls, in the JSON of a tokenizer.
CALL_TOKEN = re.compile(rf'("content":"(?:{"|".join(map(re.escape, MARKS))})",[^{{}}]*"special":)true')
TemplateValue = bool | int | float | str | None
NO_VARIABLES: Mapping[str, TemplateValue] = MappingProxyType({})
MAX_VARIABLES, MAX_VARIABLE_CHARACTERS = 16, 1_000


@dataclass(frozen=True)
class ChatMessage:
    """One message of a chat."""

    role: str
    content: str
    tool_calls: tuple[ToolCall, ...] = ()  # of an earlier answer
    tool_call_id: str = ""  # the call that a message with the role "tool" answers
    name: str = ""  # of its function

    @property
    def characters(self) -> int:
        """Length of all texts."""
        return len(self.content) + sum(len(call.name) + len(call.arguments) for call in self.tool_calls)


class ChatTemplate:
    """A template with the helpers that transformers gives to it. Thread-safe.

    Args:
        path: of the template.
        variables: texts of special tokens, by the names that the template uses.

    Raises:
        BundleError: the template cannot be read.
    """

    def __init__(self, path: Path, variables: Mapping[str, str]) -> None:
        try:
            source = path.read_text(encoding="utf-8")
            self._template = compile_template(source)
        except (OSError, ValueError, TemplateError) as error:
            raise BundleError(path, [f"not a chat template: {error}"]) from error
        self._variables = dict(variables)
        self.may_write_time = "strftime_now" in source  # equal chats may then become different prompts
        # Phi-4-mini's knows tools of messages alone: `message['tools']`.
        self.has_tools = "tools" in meta.find_undeclared_variables(self._template.environment.parse(source))
        self.has_calls = "tool_calls" in source  # else calls in earlier answers would be lost

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        variables: Mapping[str, TemplateValue] = NO_VARIABLES,
        functions: Sequence[Mapping[str, Any]] = (),
    ) -> str:
        """Return the prompt, up to where the assistant's answer begins.

        Args:
            messages: as `template_messages` makes them.
            variables: of the caller, for this template alone.
            functions: that the answer may call, as `Tool.describe` makes them.

        Raises:
            InvalidInputError: the template rejects the messages, or takes too long for them; a variable is one of the server's.
        """
        own: dict[str, Any] = {**self._variables, **ABSENT, "add_generation_prompt": True}
        if taken := sorted(variables.keys() & {*own, "messages"}):
            raise InvalidInputError(f"template_variables.{taken[0]}", "is set by the server")
        until = time.monotonic() + RENDER_SECONDS
        if functions:
            own["tools"] = functions
        left = SPARE_CHARACTERS + GROWTH * (sum(map(len, _texts([messages, functions]))) + GROWTH * len(messages))
        parts: list[str] = []
        try:
            for part in self._template.generate({**variables, **own, "messages": messages}):
                parts.append(part)
                left -= len(part)
                if left < 0 or time.monotonic() > until:
                    raise InvalidInputError("messages", "the model's chat template takes too long for them; send fewer")
            prompt = "".join(parts)
            prompt.encode()
        except InvalidInputError:
            raise
        except Exception as error:  # of any type: templates are foreign code
            problem = f"{error!s:.200}" or type(error).__name__
            raise InvalidInputError("messages", f"the model's chat template rejects them: {problem}") from error
        return prompt


def compile_template(source: str) -> Template:
    """Compile a template, with the helpers that transformers gives to it. Raises ValueError or TemplateError: it is none."""
    if len(source) > MAX_TEMPLATE_CHARACTERS:
        raise ValueError(f"{len(source):,} characters, at most {MAX_TEMPLATE_CHARACTERS:,} are allowed")
    extensions = [loopcontrols, _Generation]
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=extensions)
    environment.filters["tojson"] = _to_json
    environment.globals |= {"raise_exception": _raise, "strftime_now": lambda form: datetime.now().strftime(form)}
    return environment.from_string(source)


class _Generation(Extension):
    """The tag of transformers around an assistant's messages, `{% generation %}`, which changes nothing in a prompt."""

    tags = {"generation"}  # noqa: RUF012 as the base class has it

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        return nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True), lineno=line)


class ChatEncoder:
    """Turns chats into token ids. Special tokens that the template writes are tokens; in messages they are text.

    Args:
        tokenizer: for which special tokens in texts are text.
    """

    def __init__(self, template: ChatTemplate, tokenizer: Tokenizer) -> None:
        self._template, self._tokenizer = template, tokenizer
        self.may_write_time = template.may_write_time
        content = tokenizer.to_str()
        # Its texts show the marks of calls.
        self._aware = make_tokenizer(CALL_TOKEN.sub(r"\1false", content))
        self._aware.encode_special_tokens = False
        # This scheme is for the beginning of a prompt, not of each text between two tokens.
        later = content.replace('"prepend_scheme":"first"', '"prepend_scheme":"never"')
        self._later = tokenizer if later == content else make_tokenizer(later)
        self._added = {each.content: (id, each) for id, each in tokenizer.get_added_tokens_decoder().items() if each.special}
        self._pattern = re.compile(_any_of(self._added) if self._added else "(?!)")
        unknown = getattr(tokenizer.model, "unk_token", None)  # which stands for other texts, too
        self._watched = {id for token, (id, _) in self._added.items() if token != unknown}

    def encode(
        self,
        messages: Sequence[ChatMessage],
        variables: Mapping[str, TemplateValue] = NO_VARIABLES,
        tools: Sequence[Tool] = (),
    ) -> list[int]:
        """Render and tokenize a chat, whose answer may call `tools`.

        Raises:
            InvalidInputError: as for ChatTemplate.render; or the arguments of an earlier call are not JSON.
        """
        given, functions = template_messages(messages), [tool.describe() for tool in tools]
        if not self._template.has_tools:
            given, functions = plain_messages(given, functions), []
        elif not self._template.has_calls:
            given = [{**message, "content": with_calls(message)} for message in given]
        chat: list[Any] = [given, dict(variables), functions]
        text = "".join(_texts(chat))
        found, taken = set(self._pattern.findall(text)), set(text)
        stand_ins = dict(zip(found, (chr(code) for code in STAND_INS if chr(code) not in taken), strict=False))
        if len(stand_ins) < len(found):
            raise InvalidInputError("messages", "too many different private characters")
        if not found:
            prompt = self._template.render(*chat)
            ids = self._ids(self._aware, prompt)
            written = [self._added[token][0] for token in self._pattern.findall(prompt)]
            if [id for id in ids if id in self._watched] == [id for id in written if id in self._watched]:
                return ids
            return self._split(prompt, {})  # a normalizer has made a special token of a message's text

        def hide(text: str) -> str:
            return self._pattern.sub(lambda match: stand_ins[match[0]], text)

        prompt = self._template.render(*_with_texts(chat, hide))
        return self._split(prompt, {ord(stand_in): token for token, stand_in in stand_ins.items()})

    @property
    def call_decoder(self) -> Tokenizer:
        """Decodes answers that may have calls: the marks of calls are text even if they are special tokens."""
        return self._aware

    def _split(self, prompt: str, shown: Mapping[int, str]) -> list[int]:
        """Tokenize the texts between the special tokens, with the characters of `shown` replaced, as text."""
        ids: list[int] = []
        tokens = [self._added[token] for token in self._pattern.findall(prompt)]
        texts = [text.translate(shown) for text in self._pattern.split(prompt)]
        for place, (id, token) in enumerate(tokens):
            if token.lstrip:
                texts[place] = texts[place].rstrip()
            if token.rstrip:
                texts[place + 1] = texts[place + 1].lstrip()
            ids += [*self._text_ids(texts[place], place), id]
        return ids + self._text_ids(texts[-1], len(tokens))

    def _text_ids(self, text: str, place: int) -> list[int]:
        return self._ids(self._later if place else self._tokenizer, text) if text else []

    @staticmethod
    def _ids(tokenizer: Tokenizer, text: str) -> list[int]:
        [encoding] = tokenizer.encode_batch_fast([text], add_special_tokens=False)  # releases the GIL
        return list(encoding.ids)


def _any_of(words: Iterable[str]) -> str:
    """Return a pattern that matches the longest of some words; it has their common beginnings once, for speed."""
    ends: dict[str, list[str]] = {}
    for word in words:
        ends.setdefault(word[:1], []).append(word[1:])
    branches = [re.escape(first) + _any_of(ends[first]) for first in ends if first]
    return branches[0] if len(ends) == 1 and branches else f"(?:{'|'.join([*branches, *([''] if '' in ends else [])])})"


def template_messages(messages: Sequence[ChatMessage]) -> list[dict[str, Any]]:
    """Convert messages for a template. Raises InvalidInputError: the arguments of a call are not a JSON object."""
    given = []
    for index, message in enumerate(messages):
        one: dict[str, Any] = {"role": message.role, "content": message.content}
        calls = []
        for place, call in enumerate(message.tool_calls):
            try:
                arguments = read_object(call.arguments or "{}")
            except ValueError as error:
                field = f"messages[{index}].tool_calls[{place}].arguments"
                raise InvalidInputError(field, f"must be a JSON object: {error}") from error
            function = {"name": call.name, "arguments": arguments}
            calls.append({"id": call.id, "type": "function", "function": function})
        answers = {"tool_call_id": message.tool_call_id, "name": message.name} if message.role == "tool" else {}
        more = {"tool_calls": calls, **answers}
        given.append(one | {name: value for name, value in more.items() if value})
    return given


def _texts(value: Any) -> Iterator[str]:
    """Yield the texts in lists and mappings."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | dict):
        for each in value if isinstance(value, list) else (*value, *value.values()):
            yield from _texts(each)


def _with_texts(value: Any, change: Callable[[str], str]) -> Any:
    """Return lists and mappings with other texts."""
    if isinstance(value, list):
        return [_with_texts(each, change) for each in value]
    if isinstance(value, dict):
        return {change(key): _with_texts(each, change) for key, each in value.items()}
    return change(value) if isinstance(value, str) else value


def check_messages(messages: Sequence[ChatMessage]) -> None:
    """Check number and roles of messages.

    Raises:
        InvalidInputError: there are too many, or a role is unknown.
    """
    if len(messages) > MAX_MESSAGES:
        raise InvalidInputError("messages", f"{len(messages):,} messages are too many, at most {MAX_MESSAGES:,} are allowed")
    for index, message in enumerate(messages):
        if message.role not in ROLES:
            known = ", ".join(ROLES)
            raise InvalidInputError(f"messages[{index}].role", f"{message.role[:40]!r} is unknown, it must be one of: {known}")


def check_variables(variables: Mapping[str, TemplateValue]) -> None:
    """Check the variables of a caller for a template.

    Raises:
        InvalidInputError: there are too many, or one has another type or is too long.
    """
    if len(variables) > MAX_VARIABLES:
        problem = f"{len(variables):,} variables are too many, at most {MAX_VARIABLES} are allowed"
        raise InvalidInputError("template_variables", problem)
    for name, value in variables.items():
        if value is None:
            raise InvalidInputError(f"template_variables.{name[:40]}", "must be a boolean, a number or a text")
        if isinstance(value, str) and len(value) > MAX_VARIABLE_CHARACTERS:
            problem = f"{len(value):,} characters, at most {MAX_VARIABLE_CHARACTERS:,} are allowed"
            raise InvalidInputError(f"template_variables.{name[:40]}", problem)


def _raise(message: str) -> None:
    raise TemplateError(message)


def _to_json(value: Any, ensure_ascii: bool = False, indent: int | None = None, **options: Any) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, **options)
