"""Chat templates of checkpoints."""

from collections.abc import Mapping
from typing import NamedTuple

from jinja2 import TemplateError

from triptych_export.errors import SourceError
from triptych_export.huggingface.folder import Folder
from triptych_export.huggingface.tokenizers.special_tokens import CONFIG
from triptych_serving.models.generation.chat import compile_template

FILE, OLD_FILE = "chat_template.jinja", "chat_template.json"
MEMBER = "chat_template"
TEMPLATES = (FILE, OLD_FILE)  # beside the member of the tokenizer's settings


class Chat(NamedTuple):
    """A template, empty if there is none, and the texts of special tokens for it."""

    template: str
    variables: Mapping[str, str]
    missing: str = ""  # why there is no template although the checkpoint has some


def has_template(folder: Folder) -> bool:
    """Tell whether a folder has a chat template of its own."""
    return any(map(folder.has, TEMPLATES)) or bool(folder.members(CONFIG).get(MEMBER))


def read_chat(folder: Folder) -> Chat:
    """Read the chat template, which is in a file of its own or in the tokenizer's settings, and texts of special tokens.

    Raises:
        SourceError: the server could not use the template.
    """
    config, missing = folder.members(CONFIG), ""
    name = CONFIG if config.get(MEMBER) else OLD_FILE
    given, place = folder.members(name).get(MEMBER) or "", f"{folder.path / name}: {MEMBER}"
    if folder.has(FILE):
        given, place = (folder.path / FILE).read_bytes(), str(folder.path / FILE)
    elif isinstance(given, list) and all(isinstance(each, dict) for each in given):
        named = {each.get("name"): each.get("template") for each in given}
        missing = "" if "default" in named else f"{name}: chat_template has {', '.join(map(str, named))}, but no default"
        given = named.get("default", "")
    files = (config, folder.members("special_tokens_map.json"))
    texts = {name: value.get("content") if isinstance(value, dict) else value for file in files for name, value in file.items()}
    variables = {name: text for name, text in texts.items() if name.endswith("_token") and isinstance(text, str)}
    return Chat(checked_template(given, place), variables, missing)


def checked_template(given: object, place: str) -> str:
    """Return a template, a text or UTF-8, after compiling it as the server does; raises SourceError if that is impossible."""
    if not isinstance(given, str | bytes):
        raise SourceError(f"{place}: {given!r:.60} is not a text; correct it, or remove it to export without chat")
    try:
        text = (given.encode(errors="surrogatepass") if isinstance(given, str) else given).decode()
        compile_template(text)
    except (ValueError, TemplateError) as error:
        raise SourceError(f"{place}: not a chat template: {error}; correct it, or remove it to export without chat") from error
    return text
