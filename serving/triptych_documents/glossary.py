"""Files of words: glossaries, and lists of what must not be translated.

Text in UTF-8, or with a byte order mark. Blank lines are nothing, and so are those that begin with `#`.
"""

from collections.abc import Iterator

from triptych_documents.encoding import decode
from triptych_documents.errors import DamagedDocumentError
from triptych_documents.rules import Term

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
