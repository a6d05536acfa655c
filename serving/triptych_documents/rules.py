"""Rules that every translation must follow, and the files they are read from.

Glossaries and lists of words to keep are text files in UTF-8 or with a byte order mark. Blank lines and lines that start with
`#` are ignored.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from triptych_documents.encoding import decode
from triptych_documents.errors import DamagedDocumentError


@dataclass(frozen=True, slots=True)
class Term:
    """Glossary entry."""

    source: str
    target: str


@dataclass(frozen=True, kw_only=True)
class TranslationRules:
    """Rules for splitting, protecting and checking the text of units."""

    source_language: str = ""  # BCP 47; selects the rules for sentence splitting
    target_language: str = ""  # BCP 47
    glossary: tuple[Term, ...] = ()  # required translations; whole words, the longest match wins
    keep: tuple[str, ...] = ()  # words and phrases that must not be translated
    placeholders: tuple[str, ...] = ()
    """Additional regular expressions of text to keep, besides the built-in ones."""
    max_characters: int = 1_000
    """Maximum length of a request. Longer sentences are split at clauses, then between words; what the translator still
    refuses is split in half."""


MAX_ENTRIES = 100_000


def read_glossary(data: bytes, where: str) -> tuple[Term, ...]:
    """Read a glossary: one term per line as source, tab, target; a further tab starts a remark.

    Raises:
        DamagedDocumentError: a line has another form, or a term has two targets.
    """
    terms: dict[str, Term] = {}
    for place, line in _lines(data, where):
        source, target, *_ = (*(part.strip() for part in line.split("\t")), "", "")
        if not source or not target:
            raise DamagedDocumentError(f"expected source, tab, target, got {line[:60]!r}", place)
        known = terms.setdefault(source, Term(source, target))
        if known.target != target:
            raise DamagedDocumentError(f"{source!r} has two targets: {known.target!r} and {target!r}; keep one", place)
    return tuple(terms.values())


def read_keep(data: bytes, where: str) -> tuple[str, ...]:
    """Read a list of words and phrases that must not be translated, one per line.

    Raises:
        DamagedDocumentError: the file is not text.
    """
    return tuple(dict.fromkeys(line.strip() for _, line in _lines(data, where)))


def _lines(data: bytes, where: str) -> Iterator[tuple[str, str]]:
    """Yield the significant lines, each with its place."""
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
            raise DamagedDocumentError(f"more than {MAX_ENTRIES:,} entries, the maximum", f"{where}, line {number}")
        yield f"{where}, line {number}", line
