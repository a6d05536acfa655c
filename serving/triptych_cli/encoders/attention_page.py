"""A page with all views of attention, from the playground's style and script; it needs no server and asks for nothing."""

import base64
import html
import json
from importlib.resources import files
from pathlib import Path
from typing import Any

POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:"


def write_page(path: Path, data: dict[str, Any], image: bytes, text: str, text_pair: str) -> None:
    """Write the page."""
    folder = files("triptych_serving.gateway") / "playground"
    style, script = ((folder / name).read_text(encoding="utf-8") for name in ("style.css", "attention.js"))
    texts = "".join(f"<p>{html.escape(each)}</p>" for each in (text, text_pair, data["target"]) if each)
    message = json.dumps({_camel(name): value for name, value in data.items()}, ensure_ascii=False).replace("</", "<\\/")
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


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


def _media_type(image: bytes) -> str:
    return "image/png" if image.startswith(b"\x89PNG") else "image/webp" if image.startswith(b"RIFF") else "image/jpeg"
