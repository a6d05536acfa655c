"""Bilingual outputs for translation tools: TMX 1.4b (Translation Memory eXchange, LISA OSCAR) and XLIFF 1.2 (OASIS).

Characters that XML cannot represent are left out.
"""

from collections.abc import Iterable, Iterator
from importlib.metadata import PackageNotFoundError, version
from typing import NamedTuple

from triptych_documents.formats.shared.xml import writable, written_attribute, written_text
from triptych_documents.sentences import SentencePair

UNKNOWN = "und"  # unknown language
TOOL = "Triptych"
_XML = '<?xml version="1.0" encoding="UTF-8"?>\n'


class MemoryEntry(NamedTuple):
    """A text and its translation. Languages in BCP 47, "" if unknown."""

    source_language: str
    target_language: str
    source: str
    target: str


def tmx(translations: Iterable[MemoryEntry], source_language: str = "*all*") -> Iterator[bytes]:
    """Yield a TMX file in pieces, because a memory may exceed this machine's; `*all*` stands for any source language."""
    attributes = {
        "creationtool": TOOL,
        "creationtoolversion": _version(),
        "segtype": "sentence",
        "o-tmf": TOOL,
        "adminlang": "en",
        "srclang": source_language or UNKNOWN,
        "datatype": "plaintext",
    }
    header = "".join(f' {name}="{written_attribute(value)}"' for name, value in attributes.items())
    head = f'{_XML}<!DOCTYPE tmx SYSTEM "tmx14.dtd">\n<tmx version="1.4">\n  <header{header}/>\n  <body>\n'
    yield head.encode()
    for translation in translations:
        source = _variant(translation.source_language, translation.source)
        yield f"    <tu>\n{source}{_variant(translation.target_language, translation.target)}    </tu>\n".encode()
    yield b"  </body>\n</tmx>\n"


def write_tmx(pairs: Iterable[SentencePair], source_language: str, target_language: str) -> bytes:
    languages = source_language or UNKNOWN, target_language or UNKNOWN
    return b"".join(tmx((MemoryEntry(*languages, pair.source, pair.target) for pair in pairs), languages[0]))


def _variant(language: str, text: str) -> str:
    return f'      <tuv xml:lang="{_attribute(language)}"><seg>{_text(text)}</seg></tuv>\n'


def _text(text: str) -> str:
    return written_text(writable(text))


def _attribute(language: str) -> str:
    return written_attribute(writable(language) or UNKNOWN)


def _version() -> str:
    try:
        return version("triptych")
    except PackageNotFoundError:  # not installed
        return "0"


def write_xliff(pairs: Iterable[SentencePair], source_language: str, target_language: str) -> bytes:
    """Return the sentence pairs of one job as XLIFF, a unit for each."""
    languages = f'source-language="{_attribute(source_language)}" target-language="{_attribute(target_language)}"'
    head = (
        f'{_XML}<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2">\n'
        f'  <file original="sentences" {languages} datatype="plaintext" xml:space="preserve">\n    <body>\n'
    )
    units = (_xliff_unit(number, pair) for number, pair in enumerate(pairs, 1))
    return "".join((head, *units, "    </body>\n  </file>\n</xliff>\n")).encode()


def _xliff_unit(number: int, pair: SentencePair) -> str:
    source, target = _text(pair.source), _text(pair.target)
    return (
        f'      <trans-unit id="{number}">\n        <source>{source}</source>\n'
        f'        <target state="translated">{target}</target>\n      </trans-unit>\n'
    )
