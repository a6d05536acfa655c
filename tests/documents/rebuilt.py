"""Documents rebuilt from plain segments, with headings, lists and tables; bold words, links, code and placeholders by chance.

    python -m tests.documents.rebuilt PAIRS OUT [--segments 300]

PAIRS has source<TAB>target lines (.gz too), of which the sources are used. Writes OUT/<name>.po, .xlf, .html and .md, the same
for the same file: real text in documents whose structure is known.
"""

import gzip
import html
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import click
import polib

BOLD, LINK, CODE, PLACEHOLDER = "bold", "link", "code", "placeholder"
CODES = ("ls -l", "gsettings", "/etc/fstab", "about:config", "F11")
PLACEHOLDERS = ("{name}", "{count}", "{0}", "https://example.org/help?x=1&y=2", "user@example.org", "3.14")
CHANCES = ((BOLD, 0.35), (LINK, 0.2), (CODE, 0.1), (PLACEHOLDER, 0.15))


@dataclass(frozen=True)
class Run:
    """A few words of one kind."""

    kind: str  # "" is plain
    text: str


Segment = Sequence[Run]


def read_sources(path: Path, count: int) -> list[str]:
    """The first sources that are sentences or headings, each once."""
    content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    sources = dict.fromkeys(line.split("\t")[0].strip() for line in content.decode().splitlines())
    return [source for source in sources if re.search(r"[A-Za-z]{2}", source)][:count]


def mark_up(source: str, drawn: random.Random) -> Segment:
    """The words of a segment, some of them in markup."""
    words = source.split(" ")
    runs = [Run("", word) for word in words]
    for kind, chance in CHANCES:
        if drawn.random() < chance and len(words) > 2:
            _mark(runs, kind, drawn)
    return runs


def _mark(runs: list[Run], kind: str, drawn: random.Random) -> None:
    """One or two plain words, or something put in between two."""
    place = drawn.randrange(len(runs) - 1)
    if kind == CODE:
        runs.insert(place + 1, Run(CODE, drawn.choice(CODES)))
    elif kind == PLACEHOLDER:
        runs.insert(place + 1, Run(PLACEHOLDER, drawn.choice(PLACEHOLDERS)))
    elif all(run.kind == "" for run in runs[place : place + 2]):
        runs[place : place + 2] = [Run(kind, " ".join(run.text for run in runs[place : place + 2]))]


def as_html(segment: Segment) -> str:
    """Inline HTML."""
    shown = {BOLD: "<b>{}</b>", LINK: '<a href="https://example.org/a?b=1&amp;c=2">{}</a>', CODE: "<code>{}</code>"}
    return " ".join(shown.get(run.kind, "{}").format(html.escape(run.text, quote=False)) for run in segment)


def as_markdown(segment: Segment) -> str:
    """Inline Markdown."""
    shown = {BOLD: "**{}**", LINK: "[{}](https://example.org/a?b=1&c=2)", CODE: "`{}`"}
    return " ".join(
        shown.get(run.kind, "{}").format(run.text if run.kind in (CODE, PLACEHOLDER) else _escaped(run.text)) for run in segment
    )


def as_xliff(segment: Segment) -> str:
    """Inline XLIFF 1.2."""
    texts = []
    for number, run in enumerate(segment, 1):
        text = html.escape(run.text, quote=False)
        shown = {BOLD: f'<g id="{number}" ctype="bold">{text}</g>', LINK: f'<g id="{number}" ctype="link">{text}</g>'}
        shown[CODE] = f'<ph id="{number}">{text}</ph>'
        texts.append(shown.get(run.kind, text))
    return " ".join(texts)


def as_message(segment: Segment) -> str:
    """As messages of programs have it."""
    shown = {BOLD: "<b>{}</b>", LINK: "<a href='#'>{}</a>", CODE: "%s", PLACEHOLDER: "%(name)s"}
    return " ".join(shown.get(run.kind, "{}").format(run.text) for run in segment)


def _escaped(text: str) -> str:
    return re.sub(r"([\\`*_\[\]<>|#~])", r"\\\1", text)


def write_html(segments: Sequence[Segment], path: Path) -> None:
    """Headings, paragraphs, a list and a table in turns."""
    shapes = (
        "<h2>{}</h2>",
        "<p>{}</p>",
        "<ul>\n  <li>{}</li>\n</ul>",
        "<table><tr><td>{}</td><td>12</td></tr></table>",
        "<p>{}</p>",
    )
    body = "\n".join(shapes[index % len(shapes)].format(as_html(segment)) for index, segment in enumerate(segments))
    head = '<meta charset="utf-8">\n<title>Rebuilt</title>\n<style>p { color: red }</style>'
    path.write_text(f'<!DOCTYPE html>\n<html lang="en">\n<head>\n{head}\n</head>\n<body>\n{body}\n</body>\n</html>\n', "utf-8")


def write_markdown(segments: Sequence[Segment], path: Path) -> None:
    """Headings, paragraphs, lists, quotations and tables in turns, with a front matter and code in between."""
    shapes = ("## {}", "{}", "- {}", "> {}", "| a | b |\n|---|---|\n| {} | 12 |", "{}", "1. {}")
    blocks = [shapes[index % len(shapes)].format(as_markdown(segment)) for index, segment in enumerate(segments)]
    blocks.insert(len(blocks) // 2, "```python\nprint('Do not touch')\n```")
    path.write_text("---\ntitle: Rebuilt\n---\n\n" + "\n\n".join(blocks) + "\n", "utf-8")


def write_po(segments: Sequence[Segment], path: Path) -> None:
    """Messages without translations; every tenth has a plural."""
    catalogue = polib.POFile(wrapwidth=76)
    catalogue.metadata = {
        "Language": "de",
        "Content-Type": "text/plain; charset=UTF-8",
        "Content-Transfer-Encoding": "8bit",
        "Plural-Forms": "nplurals=2; plural=(n != 1);",
    }
    for index, message in enumerate(dict.fromkeys(map(as_message, segments))):
        flags = ["python-format"] if "%" in message else []
        entry = polib.POEntry(msgid=message, msgstr="", occurrences=[("window.ui", str(index))], flags=flags)
        if index % 10 == 9:
            entry.msgid_plural, entry.msgstr_plural = "Many: " + message, {0: "", 1: ""}
        catalogue.append(entry)
    catalogue.save(str(path))


def write_xliff(segments: Sequence[Segment], path: Path) -> None:
    """Units without targets."""
    units = "\n".join(
        f'      <trans-unit id="u{n}">\n        <source>{as_xliff(s)}</source>\n      </trans-unit>'
        for n, s in enumerate(segments)
    )
    path.write_text(
        '<?xml version="1.0" encoding="UTF-8"?>\n<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2">\n'
        '  <file original="rebuilt" source-language="en" target-language="de" datatype="plaintext">\n    <body>\n'
        f"{units}\n    </body>\n  </file>\n</xliff>\n",
        "utf-8",
    )


WRITERS = {".html": write_html, ".md": write_markdown, ".po": write_po, ".xlf": write_xliff}


def rebuild(pairs: Path, out: Path, count: int) -> Iterator[Path]:
    """Write all four; yields their paths."""
    drawn = random.Random(7)
    segments = [mark_up(source, drawn) for source in read_sources(pairs, count)]
    out.mkdir(parents=True, exist_ok=True)
    for suffix, write in WRITERS.items():
        path = out / f"{pairs.name.split('.')[0]}{suffix}"
        write(segments, path)
        yield path


@click.command()
@click.argument("pairs", type=click.Path(path_type=Path, exists=True))
@click.argument("out", type=click.Path(path_type=Path))
@click.option("--segments", default=300, show_default=True)
def main(pairs: Path, out: Path, segments: int) -> None:
    for path in rebuild(pairs, out, segments):
        click.echo(path)


if __name__ == "__main__":
    main()
