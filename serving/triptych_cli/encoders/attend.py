"""`triptych attend`: attention weights as text, JSON, a page or a picture."""

import base64
import html
import json
from collections.abc import Iterator
from dataclasses import asdict, is_dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import click

from triptych_cli.common import options
from triptych_cli.common.connection import connect, model_arguments
from triptych_cli.common.engine import open_engine
from triptych_cli.common.errors import needs, one_line
from triptych_cli.common.lines import check_stdout, json_row
from triptych_cli.common.options import asks_server
from triptych_embedded.request import TranslationRequest

DIGITS = 6  # of weights in JSON
WEIGHTS = ("encoder", "decoder", "cross")
PATCHES = ("patch_rows", "patch_columns", "crop_width", "crop_height")
FIELDS = (*WEIGHTS, "source_tokens", "target_tokens", "target", *PATCHES, "alignment")
SHOWN = 3  # sources of each token, as text
EMBEDDING, IMAGE_CLASSIFICATION, TRANSLATION = "embedding", "image-classification", "translation"
POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:"
Weights = list[list[list[list[float]]]]  # [layers][heads][targets][sources]


@click.command(name="attend")
@click.argument("text", required=False)
@click.option("--target", default="", help="Translation to attend from.  [default: the model's own]")
@click.option("--text-pair", default="", help="Second text, for models of the BERT family.")
@click.option("--image", type=options.EXISTING_FILE, help="JPEG, PNG or WebP file instead of TEXT, for image classifiers.")
@click.option(
    "--html",
    "page",
    type=options.NEW_FILE,
    callback=options.check_file,
    help="Write a page with all views, which needs no server and no network.",
)
@options.picture_file("--png", help="Write a picture: the alignment, all heads, or the rollout over the image.")
@options.as_json
@options.model_choice
@options.languages
def command(text: str | None, page: Path | None, png: Path | None, as_json: bool, image: Path | None, **values: Any) -> None:
    """Show which tokens of TEXT, or patches of an image, a model attends to, in every layer and head.

    Without --html, --png and --json, print what each token attends to most: of a translation by the model's alignment, else by
    the mean of the last layer. Models of the BERT family are chosen with --model or --text-pair.

    Without --server (or TRIPTYCH_SERVER) the engine runs in this process, on the embedded model.
    """
    if bool(text) == bool(image):
        raise click.UsageError("give either TEXT or --image")
    names = ("target", "text_pair", "source_language", "target_language")
    given = {name: values.pop(name) for name in names}
    content = image.read_bytes() if image else b""
    languages = {name: given[name] for name in ("source_language", "target_language")}
    attention = _ask(TranslationRequest(**values, **languages), {"text": text or "", "image": content, **given})
    data = _json(attention)
    if page:
        _write_page(page, data, content, text or "", given["text_pair"])
    if png:
        needs("PIL", "serve")
        from triptych_cli.encoders.attention_picture import write_picture

        write_picture(png, data, content)
    if as_json or not (page or png):
        check_stdout()
        click.echo("\n".join([json_row(**data)] if as_json else _lines(data)).encode())  # in UTF-8 whatever the locale


def _ask(choice: TranslationRequest, given: dict[str, Any]) -> Any:
    """Return the attention, from a server or an engine in this process."""
    if asks_server():
        with connect(choice.server) as client, one_line(ValueError):
            arguments = {name: value for name, value in given.items() if value}
            return client.attend(**arguments, **model_arguments(choice))
    capability = IMAGE_CLASSIFICATION if given["image"] else EMBEDDING if given["text_pair"] else TRANSLATION
    with open_engine(choice, capability) as (registry, selector):
        from triptych_serving.models.attention import AttentionInput, attend
        from triptych_serving.services.v1.attention import find_attending

        wanted = AttentionInput(**given)
        return attend(find_attending(registry, selector, wanted), wanted)


def _json(attention: Any) -> dict[str, Any]:
    """Return an attention of the client or of the engine as JSON values: weights as nested lists."""
    data = {name: getattr(attention, name) for name in FIELDS}
    return {name: _plain(value) for name, value in data.items() if value is not None or name not in WEIGHTS}


def _plain(value: Any) -> Any:
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    return round(value, DIGITS) if isinstance(value, float) else value


def mean(weights: Weights, layer: int, heads: list[int]) -> list[list[float]]:
    """Return the mean of some heads of a layer, `[targets][sources]`."""
    chosen = [weights[layer][head] for head in heads]
    return [[sum(values) / len(chosen) for values in zip(*rows, strict=True)] for rows in zip(*chosen, strict=True)]


def main_view(data: dict[str, Any]) -> tuple[list[list[float]], list[str], list[str]]:
    """Return the alignment of a translation, or else the mean of the last layer, with the names of rows and columns."""
    sources = [token["text"] for token in data["source_tokens"]]
    if "cross" in data:
        chosen = data["alignment"]
        return (
            mean(data["cross"], chosen["layer"], chosen["heads"]),
            [token["text"] for token in data["target_tokens"]],
            sources,
        )
    layers = data["encoder"]
    return mean(layers, len(layers) - 1, list(range(len(layers[-1])))), sources, sources


def _lines(data: dict[str, Any]) -> Iterator[str]:
    """Yield what each token attends to most."""
    rows, targets, sources = main_view(data)
    if not sources:
        raise click.UsageError("attention over an image is not text: give --html, --png or --json")
    width = max(map(len, targets))
    for target, row in zip(targets, rows, strict=True):
        best = sorted(range(len(row)), key=lambda place: -row[place])[:SHOWN]
        yield f"{target:{width}}  {', '.join(f'{sources[place]} {row[place]:.2f}' for place in best)}"


def _write_page(path: Path, data: dict[str, Any], image: bytes, text: str, text_pair: str) -> None:
    """Write a page with all views, from the playground's style and script; it needs no server and asks for nothing."""
    folder = files("triptych_serving.gateway") / "playground"
    style, script = ((folder / name).read_text(encoding="utf-8") for name in ("style.css", "attention.js"))
    texts = "".join(f"<p>{html.escape(each)}</p>" for each in (text, text_pair, data["target"]) if each)
    members = {name[0] + name.title().replace("_", "")[1:]: value for name, value in data.items()}  # camelCase
    message = json.dumps(members, ensure_ascii=False).replace("<", "\\u003c")  # no tag, and no comment
    kind = "png" if image.startswith(b"\x89PNG") else "webp" if image.startswith(b"RIFF") else "jpeg"
    source = f"data:image/{kind};base64,{base64.b64encode(image).decode()}" if image else ""
    page = f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<title>Attention</title>
<style>
{style}</style>
</head>
<body>
<header><h1>Attention</h1></header>
{texts}
<main id="attention"></main>
<script type="module">
{script}
showAttention(document.getElementById("attention"), {message}, {json.dumps(source)});
</script>
</body>
</html>
"""
    options.write_file(path, page.encode())
