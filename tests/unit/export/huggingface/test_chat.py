"""Chat templates of folders."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from triptych_export.errors import SourceError
from triptych_export.huggingface.architectures.decoders import make_source
from triptych_export.huggingface.chat import read_chat
from triptych_export.huggingface.folder import Folder
from triptych_training.models.gpt import Gpt, GptConfig

from ....fixtures.decoders import SHAPES


def save(folder: Path, template: Any) -> Folder:
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": template, "eos_token": "</s>"}))
    return Folder(folder)


@pytest.mark.parametrize(
    "template", ["{% for %}", "{{ x | unknown }}", {"default": "x"}, ["x"], [{"name": "default"}], "\ud800"]
)
def test_a_template_that_the_server_could_not_use_is_refused(tmp_path: Path, template: Any) -> None:
    place = re.escape(f"{tmp_path / 'tokenizer_config.json'}: chat_template: ")
    with pytest.raises(SourceError, match=f"^{place}.*; correct it, or remove it to export without chat$"):
        read_chat(save(tmp_path, template))


@pytest.mark.parametrize("content", [b"{% for %}", b"\xff"])
def test_a_file_of_its_own_counts_more(tmp_path: Path, content: bytes) -> None:
    folder = save(tmp_path, {"of": "no use"})
    (path := tmp_path / "chat_template.jinja").write_bytes("ä".encode())
    assert read_chat(folder) == ("ä", {"eos_token": "</s>"}, "")
    path.write_bytes(content)
    with pytest.raises(SourceError, match=f"^{re.escape(str(path))}: not a chat template: "):
        read_chat(folder)


def test_templates_without_a_default_are_reported(tmp_path: Path) -> None:
    named = [{"name": name, "template": name} for name in ("default", "rag")]
    assert read_chat(save(tmp_path, named))[::2] == ("default", "")
    chat = read_chat(save(tmp_path, named[1:]))
    (tmp_path / "config.json").write_text("{}")
    source = make_source(Folder(tmp_path), Gpt(GptConfig(9, **SHAPES["llama"])), None, *chat)
    assert source.provenance["chat_not_carried_over"] == "tokenizer_config.json: chat_template has rag, but no default"
