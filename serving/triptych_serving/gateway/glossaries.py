"""Glossaries of the gateway: files of a folder, `ID.SOURCE.TARGET.tsv`, which operators and DeepL's clients write."""

import logging
import re
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import grpc

from triptych_documents.errors import DocumentError
from triptych_documents.rules import Term, read_glossary
from triptych_serving.gateway.files import replace_file
from triptych_serving.rpc.direct_calls import RpcError
from triptych_serving.rpc.limits import DOCUMENT_ELEMENTS
from triptych_text.languages import primary_language

logger = logging.getLogger(__name__)

CODE = "[A-Za-z]{2,8}(?:-[A-Za-z0-9]{1,8})*"  # BCP 47
FILE = re.compile(rf"(?P<id>[A-Za-z0-9_-]{{1,64}})\.(?P<source>{CODE})\.(?P<target>{CODE})\.tsv")
NAME = re.compile(r"# name: (.+)")  # the first line of a glossary whose id is not its name
SUFFIX = ".tsv"
MOST_FILES = 1_000  # in the folder, beyond which clients write none; operators may have more
MOST_BYTES = 8 << 20  # of all files, beyond which clients write none, too: about 200,000 terms


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
        self._known: dict[str, _File] = {}  # by name

    def all(self) -> Mapping[str, Sequence[Dictionary]]:
        """Return the dictionaries of each glossary, by id. Raises RpcError: the folder cannot be read."""
        try:
            files = sorted(file for file in self._path.iterdir() if file.suffix == SUFFIX)
        except OSError as error:
            raise _unusable("read", error) from error
        known = self._known = {file.name: read for file in files if (read := self._read(file)) is not None}
        found: dict[str, list[Dictionary]] = {}
        for dictionary in (read.content for read in known.values() if read.content is not None):
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
        self.all()
        count, size = len(self._known), sum(read.size for read in self._known.values())
        if count + len(dictionaries) > MOST_FILES:
            raise _full(f"there are {count:,} dictionaries, of the {MOST_FILES:,} that there may be; delete some")
        id = str(uuid.uuid4())
        contents = {
            self._file(id, source, target): f"# name: {name}\n{_tsv(terms)}".encode()
            for (source, target), terms in dictionaries.items()
        }
        if (size := size + sum(map(len, contents.values()))) > MOST_BYTES:
            limit = f"the most that clients may fill are {MOST_BYTES:,}; delete some"
            raise _full(f"the glossaries would have {size:,} bytes, {limit}")
        try:
            for file, content in contents.items():
                replace_file(file, content)
        except OSError as error:
            for file in contents:
                with suppress(OSError):
                    file.unlink()
            raise _unusable("written", error) from error
        return self.get(id)

    def remove(self, id: str) -> None:
        """Delete a glossary. Raises RpcError: there is no such glossary, or it cannot be deleted."""
        try:
            for one in self.get(id):
                self._file(one.id, one.source, one.target).unlink(missing_ok=True)
        except OSError as error:
            raise _unusable("deleted", error) from error

    def _file(self, id: str, source: str, target: str) -> Path:
        return self._path / f"{id}.{source}.{target}{SUFFIX}"

    def _read(self, file: Path) -> "_File | None":
        """Read a file, unless it is known; None if it was deleted a moment ago."""
        known = self._known.get(file.name)
        try:
            stat = file.stat()
            if known is not None and known[:2] == (stat.st_mtime_ns, stat.st_size):
                return known
            return _File(stat.st_mtime_ns, stat.st_size, _parsed(file, stat.st_mtime))
        except FileNotFoundError:
            return None
        except OSError as error:
            if known != UNREADABLE:
                logger.warning("glossary skipped: %s: %s", file, error.strerror)
            return UNREADABLE


class _File(NamedTuple):
    """A file that was read."""

    changed: int  # nanoseconds since the epoch
    size: int  # bytes
    content: Dictionary | None  # None: it cannot be used


UNREADABLE = _File(-1, 0, None)  # for now: another attempt is made each time


def _parsed(file: Path, changed: float) -> Dictionary | None:
    name = FILE.fullmatch(file.name)
    if name is None:
        logger.warning("glossary skipped: %s: its name is not ID.SOURCE.TARGET.tsv, such as products.en.de.tsv", file)
        return None
    data = file.read_bytes()
    try:
        terms = read_glossary(data, str(file))
    except DocumentError as error:
        logger.warning("glossary skipped: %s", error)
        return None
    if len(terms) > DOCUMENT_ELEMENTS:
        logger.warning("glossary skipped: %s: %d terms, the limit is %d", file, len(terms), DOCUMENT_ELEMENTS)
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
