"""A page with all views of attention, from the playground's style and script; it needs no server and asks for nothing."""

import base64
import html
import json
from array import array
from importlib.resources import files
from itertools import chain
from pathlib import Path
from typing import Any

POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:"
KINDS = ("encoder", "decoder", "cross")


def write_page(path: Path, data: dict[str, Any], image: bytes, text: str, text_pair: str) -> None:
    """Write the page.

    Args:
        path: of the page.
        data: the attention as JSON values.
        image: the file that it is about; empty for texts.
        text: the text.
        text_pair: the second text.
    """
    folder = files("triptych_serving.gateway") / "playground"
    style, script = ((folder / name).read_text(encoding="utf-8") for name in ("style.css", "attention.js"))
    texts = "".join(f"<p>{html.escape(each)}</p>" for each in (text, text_pair, data["target"]) if each)
    message = json.dumps(_message(data), ensure_ascii=False).replace("</", "<\\/")
    source = f"data:{_media_type(image)};base64,{base64.b64encode(image).decode()}" if image else ""
    path.write_text(
        f"""<!doctype html>
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
""",
        encoding="utf-8",
    )


def _message(data: dict[str, Any]) -> dict[str, Any]:
    """Return the attention as the JSON of AttendResponse."""
    given = {name: value for name, value in data.items() if name not in KINDS and value is not None}
    weights = {kind: _weights(data[kind]) for kind in KINDS if kind in data}
    return {**{_camel(name): value for name, value in given.items()}, **weights}


def _weights(layers: list[list[list[list[float]]]]) -> dict[str, Any]:
    sizes = len(layers), len(layers[0]), len(layers[0][0]), len(layers[0][0][0])
    values = chain.from_iterable(row for layer in layers for head in layer for row in head)
    content = base64.b64encode(array("f", values)).decode()
    return {**dict(zip(("layers", "heads", "targets", "sources"), sizes, strict=True)), "values": content}


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


def _media_type(image: bytes) -> str:
    return "image/png" if image.startswith(b"\x89PNG") else "image/webp" if image.startswith(b"RIFF") else "image/jpeg"
