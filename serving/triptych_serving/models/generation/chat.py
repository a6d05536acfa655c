"""Chat templates: Jinja templates of checkpoints that turn messages into a prompt, rendered in a sandbox."""

import json
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from jinja2 import TemplateError
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from triptych_serving.errors import BundleError, InvalidInputError
from triptych_serving.text.tokenizers import Tokenizer

ROLES = ("system", "developer", "user", "assistant", "tool")
MAX_MESSAGES = 1_024
MAX_TEMPLATE_CHARACTERS = 1 << 20
RENDER_SECONDS = 1.0
GROWTH = 16  # characters that a template may add to each of the messages', and to a chat
SPARE_CHARACTERS = 65_536
STAND_IN = 0xF0000  # private characters that stand for special tokens in messages, while the template is rendered


@dataclass(frozen=True)
class ChatMessage:
    """One message of a chat."""

    role: str
    content: str


class ChatTemplate:
    """A template with the helpers that transformers gives to it. Thread-safe.

    Args:
        path: of the template.
        variables: texts of special tokens, by the names that the template uses.

    Raises:
        BundleError: the template cannot be read.
    """

    def __init__(self, path: Path, variables: Mapping[str, str]) -> None:
        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
        environment.filters["tojson"] = _to_json
        environment.globals |= {"raise_exception": _raise, "strftime_now": lambda form: datetime.now().strftime(form)}
        try:
            source = path.read_text(encoding="utf-8")
            if len(source) > MAX_TEMPLATE_CHARACTERS:
                raise ValueError(f"{len(source):,} characters, at most {MAX_TEMPLATE_CHARACTERS:,} are allowed")
            self._template = environment.from_string(source)
        except (OSError, ValueError, TemplateError) as error:
            raise BundleError(path, [f"not a chat template: {error}"]) from error
        self._variables = dict(variables)
        self.may_write_time = "strftime_now" in source  # equal chats may then become different prompts

    def render(self, messages: Sequence[ChatMessage]) -> str:
        """Return the prompt, up to where the assistant's answer begins.

        Raises:
            InvalidInputError: the template rejects the messages, or takes too long for them.
        """
        until = time.monotonic() + RENDER_SECONDS
        left = SPARE_CHARACTERS + GROWTH * sum(len(message.content) + GROWTH for message in messages)
        given = [{"role": message.role, "content": message.content} for message in messages]
        parts: list[str] = []
        try:
            for part in self._template.generate(**self._variables, messages=given, add_generation_prompt=True):
                parts.append(part)
                left -= len(part)
                if left < 0 or time.monotonic() > until:
                    raise InvalidInputError("messages", "the model's chat template takes too long for them; send fewer")
        except (TemplateError, ArithmeticError, LookupError, TypeError, ValueError) as error:
            raise InvalidInputError("messages", f"the model's chat template rejects them: {error!s:.200}") from error
        return "".join(parts)


class ChatEncoder:
    """Turns chats into token ids. Special tokens that the template writes are tokens; in messages they are text.

    Args:
        tokenizer: for which special tokens in texts are text.
        aware: the same tokenizer, which recognises them.
    """

    def __init__(self, template: ChatTemplate, tokenizer: Tokenizer, aware: Tokenizer) -> None:
        self._template, self._tokenizer, self._aware = template, tokenizer, aware
        self.may_write_time = template.may_write_time
        special = {token.content: index for index, token in tokenizer.get_added_tokens_decoder().items() if token.special}
        self._special = special
        self._pattern = re.compile("|".join(map(re.escape, sorted(special, key=len, reverse=True))) or "(?!)")
        self._stand_ins = {token: chr(STAND_IN + place) for place, token in enumerate(special)}

    def encode(self, messages: Sequence[ChatMessage]) -> list[int]:
        """Render and tokenize a chat.

        Raises:
            InvalidInputError: as for ChatTemplate.render.
        """
        hidden = [ChatMessage(each.role, self._pattern.sub(self._stand_in, each.content)) for each in messages]
        prompt = self._template.render(hidden)
        if hidden == list(messages):
            return self._ids(self._aware, prompt)
        ids: list[int] = []
        start = 0
        for match in self._pattern.finditer(prompt):
            ids += self._plain(prompt[start : match.start()])
            ids.append(self._special[match[0]])
            start = match.end()
        return ids + self._plain(prompt[start:])

    def _plain(self, text: str) -> list[int]:
        for token, stand_in in self._stand_ins.items():
            text = text.replace(stand_in, token)
        return self._ids(self._tokenizer, text) if text else []

    def _stand_in(self, match: re.Match[str]) -> str:
        return self._stand_ins[match[0]]

    @staticmethod
    def _ids(tokenizer: Tokenizer, text: str) -> list[int]:
        [encoding] = tokenizer.encode_batch_fast([text], add_special_tokens=False)  # releases the GIL
        return list(encoding.ids)


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


def _raise(message: str) -> None:
    raise TemplateError(message)


def _to_json(value: Any, ensure_ascii: bool = False, indent: int | None = None, **options: Any) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, **options)
