"""Writing sentences beside their translations as XLIFF 1.2 (OASIS), for translators' tools."""

from collections.abc import Iterable, Iterator
from itertools import chain

from triptych_documents.formats.shared.xml_text import writable, written_attribute, written_text
from triptych_documents.sentences import SentencePair

UNKNOWN = "und"  # a language that nobody said


def write_xliff(pairs: Iterable[SentencePair], source_language: str, target_language: str) -> bytes:
    """The pairs of one job: a unit for each. Characters that XML lacks are left out."""
    return b"".join(xliff(pairs, source_language, target_language))


def xliff(pairs: Iterable[SentencePair], source_language: str, target_language: str) -> Iterator[bytes]:
    """An XLIFF file, piece by piece, with a unit for each pair; characters that XML lacks are left out."""
    languages = f'source-language="{_attribute(source_language)}" target-language="{_attribute(target_language)}"'
    head = (
        f'<?xml version="1.0" encoding="UTF-8"?>\n<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2">\n'
        f'  <file original="sentences" {languages} datatype="plaintext" xml:space="preserve">\n    <body>\n'
    )
    units = (_unit(number, pair) for number, pair in enumerate(pairs, 1))
    yield from (part.encode() for part in chain([head], units, ["    </body>\n  </file>\n</xliff>\n"]))


def _unit(number: int, pair: SentencePair) -> str:
    source, target = _text(pair.source), _text(pair.target)
    return (
        f'      <trans-unit id="{number}">\n        <source>{source}</source>\n'
        f'        <target state="translated">{target}</target>\n      </trans-unit>\n'
    )


def _text(text: str) -> str:
    return written_text(writable(text))


def _attribute(language: str) -> str:
    return written_attribute(writable(language) or UNKNOWN)
