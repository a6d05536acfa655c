"""Glossaries of the gateway: files of a folder, `ID.SOURCE.TARGET.tsv`, which operators and DeepL's clients write."""

import logging
import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import grpc

from triptych_documents.errors import DocumentError
from triptych_documents.rules import Term, read_glossary
from triptych_serving.rpc.direct_calls import RpcError
from triptych_text.languages import primary_language

logger = logging.getLogger(__name__)

CODE = "[A-Za-z]{2,8}(?:-[A-Za-z0-9]{1,8})*"  # BCP 47
FILE = re.compile(rf"(?P<id>[A-Za-z0-9_-]{{1,64}})\.(?P<source>{CODE})\.(?P<target>{CODE})\.tsv")
NAME = re.compile(r"# name: (.+)")  # the first line of a glossary whose id is not its name
SUFFIX = ".tsv"
MOST_GLOSSARIES = 1_000  # as at DeepL; operators may have more
MOST_BYTES = 8 << 20  # of all files, beyond which clients write none: about 200,000 terms
MOST_TERMS = 10_000  # as TranslateDocument accepts


@dataclass(frozen=True)
class Dictionary:
    """The terms of a glossary for one pair of languages."""

    id: str  # of the glossary
    name: str
    source: str
    target: str
    changed: float  # seconds since the epoch
    terms: tuple[Term, ...]

    @property
    def time(self) -> str:
        """The time of the last change, as in JSON."""
        return datetime.fromtimestamp(self.changed, UTC).isoformat()

    @property
    def entries(self) -> str:
        """The terms as tab-separated values."""
        return _tsv(self.terms)


class GlossaryFolder:
    """The glossaries in a folder, whose files may change at any time. Its methods read and write files.

    A file that cannot be used is left out, and the log tells why.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known: dict[str, tuple[tuple[int, int], Dictionary | None]] = {}  # by file name: signature and content

    def all(self) -> Mapping[str, Sequence[Dictionary]]:
        """Return the dictionaries of each glossary, by id. Raises RpcError: the folder cannot be read."""
        found: dict[str, list[Dictionary]] = {}
        try:
            files = sorted(self._path.glob(f"*{SUFFIX}"))
        except OSError as error:
            raise _unusable("read", error) from error
        for file in files:
            if (dictionary := self._read(file)) is not None:
                found.setdefault(dictionary.id, []).append(dictionary)
        return found

    def get(self, id: str) -> Sequence[Dictionary]:
        """Return the dictionaries of a glossary. Raises RpcError: there is no such glossary."""
        if not (found := self.all().get(id)):
            raise RpcError.of(grpc.StatusCode.NOT_FOUND, f"glossary_id: there is no glossary {id[:64]!r}")
        return found

    def terms(self, id: str, source: str, target: str) -> tuple[Term, ...]:
        """Return the terms of a glossary for texts in these languages. Raises RpcError: it has none for them."""
        found, wanted = self.get(id), (primary_language(source), primary_language(target))
        alike = [one for one in found if (primary_language(one.source), primary_language(one.target)) == wanted]
        if not alike:
            pairs = ", ".join(f"{one.source} to {one.target}" for one in found)
            raise RpcError.of(
                grpc.StatusCode.INVALID_ARGUMENT, f"glossary_id: {id!r} is not for {source} to {target}, but for {pairs}"
            )
        return max(alike, key=lambda one: one.target.lower() == target.lower()).terms

    def add(self, name: str, dictionaries: Mapping[tuple[str, str], Sequence[Term]]) -> Sequence[Dictionary]:
        """Write a glossary, whose dictionaries are by source and target language. Raises RpcError: it cannot be written."""
        if len(self.all()) >= MOST_GLOSSARIES:
            raise _full(f"there are {MOST_GLOSSARIES:,} glossaries, the most that there may be; delete one")
        id = str(uuid.uuid4())
        contents = {pair: f"# name: {name}\n{_tsv(terms)}".encode() for pair, terms in dictionaries.items()}
        try:
            size = sum(file.stat().st_size for file in self._path.iterdir()) + sum(map(len, contents.values()))
            if size > MOST_BYTES:
                limit = f"the most that clients may fill are {MOST_BYTES:,}; delete some"
                raise _full(f"the glossaries would have {size:,} bytes, {limit}")
            for (source, target), content in contents.items():
                file = self._path / f"{id}.{source}.{target}{SUFFIX}"
                written = file.with_suffix(".new")
                written.write_bytes(content)
                written.replace(file)
        except OSError as error:
            raise _unusable("written", error) from error
        return self.get(id)

    def remove(self, id: str) -> None:
        """Delete a glossary. Raises RpcError: there is no such glossary, or it cannot be deleted."""
        try:
            for one in self.get(id):
                (self._path / f"{one.id}.{one.source}.{one.target}{SUFFIX}").unlink(missing_ok=True)
        except OSError as error:
            raise _unusable("deleted", error) from error

    def _read(self, file: Path) -> Dictionary | None:
        """Read a dictionary, unless it is known; None if it cannot be used."""
        try:
            stat = file.stat()
            signature = stat.st_mtime_ns, stat.st_size
            known = self._known.get(file.name)
            if known is None or known[0] != signature:
                known = self._known[file.name] = signature, _parsed(file, stat.st_mtime)
        except FileNotFoundError:  # deleted a moment ago
            return None
        return known[1]


def _parsed(file: Path, changed: float) -> Dictionary | None:
    name = FILE.fullmatch(file.name)
    if name is None:
        logger.warning("glossary skipped: %s: its name is not ID.SOURCE.TARGET.tsv, such as products.en.de.tsv", file)
        return None
    try:
        data = file.read_bytes()
        terms = read_glossary(data, str(file))
    except (DocumentError, OSError) as error:
        logger.warning("glossary skipped: %s", error if isinstance(error, DocumentError) else f"{file}: {error.strerror}")
        return None
    if len(terms) > MOST_TERMS:
        logger.warning("glossary skipped: %s: %d terms, the limit is %d", file, len(terms), MOST_TERMS)
        return None
    title = NAME.match(data[:4_096].decode(errors="replace"))
    return Dictionary(**name.groupdict(), name=title[1].strip() if title else name["id"], changed=changed, terms=terms)


def _tsv(terms: Sequence[Term]) -> str:
    return "".join(f"{term.source}\t{term.target}\n" for term in terms)


def _full(problem: str) -> RpcError:
    return RpcError.of(grpc.StatusCode.FAILED_PRECONDITION, problem)


def _unusable(what: str, error: OSError) -> RpcError:
    reason = error.strerror or "unknown error"
    return RpcError.of(grpc.StatusCode.FAILED_PRECONDITION, f"glossaries cannot be {what} (--glossaries): {reason}")
