"""Writing TMX 1.4b (Translation Memory eXchange, LISA OSCAR): sentences beside their translations, for translators' tools."""

from collections.abc import Iterable, Iterator
from importlib.metadata import PackageNotFoundError, version
from itertools import chain
from typing import NamedTuple

from triptych_documents.formats.shared.xml import writable, written_attribute, written_text
from triptych_documents.sentences import SentencePair

UNKNOWN = "und"  # a language that nobody said
TOOL = "Triptych"
_XML = '<?xml version="1.0" encoding="UTF-8"?>\n'


class Translation(NamedTuple):
    """A text and what it became. Languages in BCP 47, empty where nobody knows them."""

    source_language: str
    target_language: str
    source: str
    target: str


def tmx(translations: Iterable[Translation], source_language: str = "*all*") -> Iterator[bytes]:
    """A TMX file, piece by piece: a memory may be larger than this machine's.

    Args:
        translations: in any order; equal ones are all written. Characters that XML lacks are left out.
        source_language: of all of them; `*all*`: the first of a unit's two languages is its source.
    """
    attributes = {
        "creationtool": TOOL,
        "creationtoolversion": _version(),
        "segtype": "sentence",
        "o-tmf": TOOL,
        "adminlang": "en",
        "srclang": source_language or UNKNOWN,
        "datatype": "plaintext",
    }
    said = "".join(f' {name}="{written_attribute(value)}"' for name, value in attributes.items())
    head = f'{_XML}<!DOCTYPE tmx SYSTEM "tmx14.dtd">\n<tmx version="1.4">\n  <header{said}/>\n  <body>\n'
    yield from (part.encode() for part in chain([head], map(_tmx_unit, translations), ["  </body>\n</tmx>\n"]))


def write_tmx(pairs: Iterable[SentencePair], source_language: str, target_language: str) -> bytes:
    """The pairs of one job as TMX."""
    languages = source_language or UNKNOWN, target_language or UNKNOWN
    return b"".join(tmx((Translation(*languages, pair.source, pair.target) for pair in pairs), languages[0]))


def _tmx_unit(translation: Translation) -> str:
    source = _variant(translation.source_language, translation.source)
    return f"    <tu>\n{source}{_variant(translation.target_language, translation.target)}    </tu>\n"


def _variant(language: str, text: str) -> str:
    return f'      <tuv xml:lang="{_attribute(language)}"><seg>{_text(text)}</seg></tuv>\n'


def _text(text: str) -> str:
    return written_text(writable(text))


def _attribute(language: str) -> str:
    return written_attribute(writable(language) or UNKNOWN)


def _version() -> str:
    try:
        return version("triptych")
    except PackageNotFoundError:  # run from a folder without being installed
        return "0"


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
    units = (_xliff_unit(number, pair) for number, pair in enumerate(pairs, 1))
    yield from (part.encode() for part in chain([head], units, ["    </body>\n  </file>\n</xliff>\n"]))


def _xliff_unit(number: int, pair: SentencePair) -> str:
    source, target = _text(pair.source), _text(pair.target)
    return (
        f'      <trans-unit id="{number}">\n        <source>{source}</source>\n'
        f'        <target state="translated">{target}</target>\n      </trans-unit>\n'
    )
