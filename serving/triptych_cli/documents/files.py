"""Output files: written completely or not at all, and bilingual files beside documents."""

import csv
import hashlib
import io
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from triptych_cli.common.lines import unfinished
from triptych_cli.common.options import STDOUT
from triptych_documents.formats.bilingual import write_tmx, write_xliff
from triptych_documents.sentences import SentencePair

BLOCK = 1 << 20


def write_whole(path: Path, content: bytes | Iterable[bytes], ready: Callable[[str], None] = lambda _: None) -> None:
    """Write a file, in a new folder if needed, under a temporary name and rename it: readers see the old content or the new.

    A link stays, and the file that it leads to is replaced. Pipes and devices are written to.

    Args:
        ready: called with the SHA-256 of the content before the file is renamed.

    Raises:
        OSError: it cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    part = unfinished(path)
    hashed = hashlib.sha256()
    with open(part or path, "wb") as file:
        for piece in [content] if isinstance(content, bytes) else content:
            file.write(piece)
            hashed.update(piece)
        file.flush()
        if part:
            os.fsync(file.fileno())
    ready(hashed.hexdigest())
    if part:
        part.replace(path.resolve())


def write_json(path: Path, values: object) -> None:
    """Write indented JSON, to standard output if the path is `-`. Half a surrogate pair becomes an escape.

    Raises:
        OSError: it cannot be written.
    """
    content = json.dumps(values, ensure_ascii=False, indent=2).encode(errors="backslashreplace") + b"\n"
    if path in STDOUT:
        click.echo(content, nl=False)
    else:
        write_whole(path, content)


def read_blocks(path: Path) -> Iterator[bytes]:
    """Read a file in blocks, as it may be larger than the memory. Raises OSError: it cannot be read."""
    with open(path, "rb") as file:
        while block := file.read(BLOCK):
            yield block


@dataclass(frozen=True)
class BilingualFormat:
    """A format of files with source and translation side by side."""

    name: str
    suffix: str  # added to the whole name of the document
    write: Callable[[Sequence[SentencePair], str, str], bytes]  # with the source and the target language


def write_tsv(pairs: Sequence[SentencePair], source_language: str, target_language: str) -> bytes:
    """Write two columns under the names of the languages; fields with tabs, line breaks or quotation marks are quoted."""
    text = io.StringIO()
    writer = csv.writer(text, "excel-tab", lineterminator="\n")
    writer.writerow((source_language or "source", target_language or "target"))
    writer.writerows((pair.source, pair.target) for pair in pairs)
    return text.getvalue().encode(errors="backslashreplace")


BILINGUAL = {
    each.name: each
    for each in (
        BilingualFormat("tmx", ".tmx", write_tmx),
        BilingualFormat("tsv", ".tsv", write_tsv),
        BilingualFormat("xliff", ".xlf", write_xliff),
    )
}
