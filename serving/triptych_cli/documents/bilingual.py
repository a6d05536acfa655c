"""Source and translation side by side, in a file beside each document."""

import csv
import importlib
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from triptych_documents.sentences import SentencePair

Write = Callable[[Sequence[SentencePair], str, str], bytes]  # pairs, source language, target language


@dataclass(frozen=True)
class Bilingual:
    """A kind of such files."""

    name: str
    suffix: str  # behind the whole name of the document
    writer: str  # module and function; imported when it is needed

    def write(self, pairs: Sequence[SentencePair], source_language: str, target_language: str) -> bytes:
        """The file's content."""
        module, _, name = self.writer.rpartition(".")
        writer: Write = getattr(importlib.import_module(module), name)
        return writer(pairs, source_language, target_language)


def write_tsv(pairs: Sequence[SentencePair], source_language: str, target_language: str) -> bytes:
    """Two columns under the languages' names; fields with tabs, line ends or quotation marks are in quotation marks."""
    text = io.StringIO()
    writer = csv.writer(text, "excel-tab", lineterminator="\n")
    writer.writerow((source_language or "source", target_language or "target"))
    writer.writerows((pair.source, pair.target) for pair in pairs)
    return text.getvalue().encode(errors="backslashreplace")


KINDS = {
    each.name: each
    for each in (
        Bilingual("tmx", ".tmx", "triptych_documents.formats.bilingual.write_tmx"),
        Bilingual("tsv", ".tsv", f"{__name__}.write_tsv"),
        Bilingual("xliff", ".xlf", "triptych_documents.formats.bilingual.write_xliff"),
    )
}
