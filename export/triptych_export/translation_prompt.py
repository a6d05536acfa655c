"""Decoder-only models that translate: their chat template becomes one that asks for the translation of a text."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from langcodes import Language

from triptych_export.errors import SourceError
from triptych_export.generation_source import GenerationSource
from triptych_export.huggingface.chat import checked_template
from triptych_serving.bundle.manifest.text_generation import LEAST_LANGUAGES
from triptych_text.languages import is_language

PROMPT = "Translate the following text from {source} to {target}. Answer with the translation only.\n\n{text}"
PROMPTS = {  # of model types whose cards name one
    "hunyuan_v1_dense": "Translate the following segment into {target}, without additional explanation.\n\n{text}",
}
VARIABLES = {  # of the template, by field of the prompt
    "source": "source_language",
    "source_code": "source_code",
    "target": "target_language",
    "target_code": "target_code",
    "text": "messages[0].content",
}
FIELD = re.compile(rf"\{{({'|'.join(VARIABLES)})\}}")


def ask_to_translate(source: GenerationSource, languages: Sequence[str], prompt: str = "") -> GenerationSource:
    """Make a model a translator.

    Args:
        languages: codes, each with an English name behind `=` if it is not to have the usual one.
        prompt: the user's message, in which `{source}` and `{target}` are names of languages, `{source_code}` and
            `{target_code}` their codes; with a special token of the tokenizer, it is all that the model reads. Empty: the usual
            one.

    Raises:
        SourceError: a code or the prompt cannot be used, or the model has no chat template.
    """
    prompt = prompt or PROMPTS.get(source.family, PROMPT)
    fields = set(FIELD.findall(prompt))
    if not ("text" in fields and fields & {"target", "target_code"}):
        raise SourceError(f"translation_prompt: {prompt!r:.60} lacks {{target}} or {{text}}")
    tokenizer = source.tokenizer
    special = [token.content for token in tokenizer.get_added_tokens_decoder().values() if token.special] if tokenizer else []
    asked = " ~ ".join(VARIABLES[part] if index % 2 else json.dumps(part) for index, part in enumerate(FIELD.split(prompt)))
    if any(token in prompt for token in special):
        template = f"{{{{ {asked} }}}}"
    elif source.template:
        template = f'{{%- set messages = [{{"role": "user", "content": {asked}}}] -%}}\n{source.template}'
    else:
        remedy = "name a whole prompt with its special tokens in --translation-prompt"
        raise SourceError(f"translation_languages: the checkpoint has no chat template; {remedy}")
    return replace(source, template=checked_template(template, "translation_prompt"), languages=_named(languages))


def _named(languages: Sequence[str]) -> Mapping[str, str]:
    """Return the names of languages by code."""
    named = {}
    for each in languages:
        code, _, name = (part.strip() for part in each.partition("="))
        if not is_language(code):
            raise SourceError(f"translation_languages: {code!r} is not a language code such as de or pt-BR")
        named[code] = name or Language.get(code).display_name()
    if len(named) < LEAST_LANGUAGES:
        raise SourceError("translation_languages: name two or more, such as en,de")
    return named
