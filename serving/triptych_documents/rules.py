"""What must hold in every translation."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from triptych_documents.encoding import decode
from triptych_documents.errors import DamagedDocumentError


@dataclass(frozen=True, slots=True)
class Term:
    """An entry of a glossary."""

    source: str
    target: str


@dataclass(frozen=True, kw_only=True)
class TranslationRules:
    """How the text of units is cut, protected and checked.

    Args:
        source_language: BCP 47: sentences are split by its rules.
        target_language: BCP 47.
        glossary: source terms and what they must become; whole words, the longest first.
        keep: words and phrases that must not be translated.
        placeholders: further patterns (regular expressions) of what must be kept, beside those that are known.
        max_characters: of one ask; longer sentences are cut at clauses, then at words. What the model cannot take all the same
            (a Refusal) is cut in halves.
    """

    source_language: str = ""
    target_language: str = ""
    glossary: tuple[Term, ...] = ()
    keep: tuple[str, ...] = ()
    placeholders: tuple[str, ...] = field(default=())
    max_characters: int = 1_000


MAX_ENTRIES = 100_000


def read_glossary(data: bytes, where: str) -> tuple[Term, ...]:
    """Terms: on each line a source, a tab, and a target; what follows another tab is a remark.

    Args:
        data: of the file.
        where: its name, for errors.

    Raises:
        DamagedDocumentError: it is no such file, or says two things of one term.
    """
    terms: dict[str, Term] = {}
    for place, line in _lines(data, where):
        source, target, *_ = (*(part.strip() for part in line.split("\t")), "", "")
        if not source or not target:
            raise DamagedDocumentError(f"{line[:60]!r} is not source, tab, target", place)
        known = terms.setdefault(source, Term(source, target))
        if known.target != target:
            raise DamagedDocumentError(f"{source!r} has two targets: {known.target!r} and {target!r}", place)
    return tuple(terms.values())


def read_keep(data: bytes, where: str) -> tuple[str, ...]:
    """Words and phrases that must not be translated: one on each line.

    Args:
        data: of the file.
        where: its name, for errors.

    Raises:
        DamagedDocumentError: it is no text.
    """
    return tuple(dict.fromkeys(line.strip() for _, line in _lines(data, where)))


def _lines(data: bytes, where: str) -> Iterator[tuple[str, str]]:
    """Those that say something, each with its place."""
    try:
        text, _ = decode(data)
    except DamagedDocumentError as error:
        raise DamagedDocumentError(str(error), where) from None
    count = 0
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        count += 1
        if count > MAX_ENTRIES:
            raise DamagedDocumentError(f"more than {MAX_ENTRIES:,} entries", f"{where}, line {number}")
        yield f"{where}, line {number}", line
