"""Prompts that ask a decoder-only model to translate."""

from dataclasses import replace

import pytest

from triptych_export.errors import SourceError
from triptych_export.translation_prompt import PROMPTS, ask_to_translate
from triptych_serving.models.generation.chat import compile_template

from ...fixtures.decoders import decoder_source

SOURCE = decoder_source("llama")


def rendered(prompt: str, languages: tuple[str, ...] = ("en", "de"), **changes: str) -> str:
    source = ask_to_translate(replace(SOURCE, **changes), languages, prompt)
    names = dict(zip(("source_language", "target_language"), source.languages.values(), strict=True))
    names |= dict(zip(("source_code", "target_code"), source.languages, strict=True))
    messages = [{"role": "user", "content": 'A "text"\n{target}'}]
    return compile_template(source.template).render(messages=messages, add_generation_prompt=True, **names)


def test_the_prompt_is_the_message_of_the_chat_template() -> None:
    found = rendered('From {source} to {target}, "please":\n{{ x }} {% y %}\n{text}\nÄ')
    message = 'From English to German, "please":\n{{ x }} {% y %}\nA "text"\n{target}\nÄ'
    assert found == f"<|im_start|>user\n{message}<|im_end|>\n<|im_start|>assistant\n"


def test_a_prompt_with_special_tokens_is_all_of_it() -> None:
    assert rendered("<|im_end|>{text} <{target_code}> ({source_code})") == '<|im_end|>A "text"\n{target} <de> (en)'
    assert rendered("<|im_start|>{target}: {text}<|im_end|>\n") == '<|im_start|>German: A "text"\n{target}<|im_end|>\n'


def test_the_usual_prompt_names_both_languages_unless_the_models_card_has_one() -> None:
    assert "Translate the following text from English to German." in rendered("")
    assert PROMPTS["hunyuan_v1_dense"].replace("{target}", "German").split("\n")[0] in rendered("", family="hunyuan_v1_dense")


def test_a_name_may_be_given() -> None:
    source = ask_to_translate(SOURCE, ["en", " zh = Chinese (Simplified)"])
    assert source.languages == {"en": "English", "zh": "Chinese (Simplified)"}


@pytest.mark.parametrize(
    ("languages", "prompt", "template", "message"),
    [
        (["en"], "", "x", "translation_languages: name two or more"),
        (["en", "d!"], "", "x", "translation_languages: 'd!' is not a language code"),
        (["en", "de"], "To {target}", "x", r"translation_prompt: 'To \{target\}' lacks \{target\} or \{text\}"),
        (["en", "de"], "", "", "translation_languages: the checkpoint has no chat template; name a whole prompt"),
    ],
)
def test_what_cannot_be_used_is_refused(languages: list[str], prompt: str, template: str, message: str) -> None:
    with pytest.raises(SourceError, match=f"^{message}"):
        ask_to_translate(replace(SOURCE, template=template), languages, prompt)
