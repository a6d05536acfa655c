"""The work on one document that takes long: reading it, finding its sentences, writing it. In a thread, or in another process.

`python -m triptych_serving.services.documents.work NICENESS` is such a process: it reads calls from standard input and writes
their results to standard output, both pickled.
"""

import gc
import io
import os
import pickle
import struct
import sys
import traceback
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, BinaryIO

from triptych_documents.driver import DocumentDriver
from triptych_documents.errors import DocumentError, OptionError
from triptych_documents.findings import Finding
from triptych_documents.format import Document, FormatInfo, ReadOptions
from triptych_documents.rules import TranslationRules
from triptych_documents.sentences import SentenceRequest, SentenceResult
from triptych_documents.translation.units import UnitTranslator
from triptych_documents.unit import Piece, Unit
from triptych_serving.errors import InvalidInputError
from triptych_serving.runtime.cpu_info import usable_memory
from triptych_serving.runtime.process import depend_on_parent, give_way

MAX_SEGMENTS = 1_000_000
BATCH_ROWS = 32  # sentences in one call to the engine; in each of the engine's turns a call contributes one row
STEP_UNITS = 500  # segments read in one go: other documents need the thread too
GC_OBJECTS = 1_000_000  # made before garbage is looked for in a process of its own: documents form few cycles
LEAST_BYTES = 1 << 30  # of memory for a document's process, else half of the machine's or container's
SIZE = struct.Struct(">Q")  # before a pickled call or result

Results = Sequence[tuple[SentenceRequest, SentenceResult]]
Findings = Sequence[tuple[int, Finding]]  # with the number of the document


@dataclass(frozen=True, slots=True)
class Step:
    """A step of the translation: the units that some results finish, and the next sentences to translate."""

    finished: int  # units
    sentences: int  # of these units
    findings: Findings
    batches: Sequence[Sequence[SentenceRequest]]
    is_finished: bool  # nothing is left to do
    can_read: bool  # there may be more sentences without further results


class DocumentWork:
    """The work on one document, or on several of one request together, in the order of the methods. Not thread-safe.

    Args:
        kind: their format.
        rows: most sentences in flight.
    """

    def __init__(self, kind: FormatInfo, reading: ReadOptions, rules: TranslationRules, rows: int) -> None:
        self._kind, self._reading, self._rules, self._rows = kind, reading, rules, rows
        self._translations: list[dict[int, Sequence[Piece]]] = []  # of each document
        self._documents: list[Document] = []
        self._driver: DocumentDriver

    def read(self, *data: bytes) -> tuple[int, Findings]:
        """Read the documents; returns the number of segments, and findings.

        Raises:
            InvalidInputError: one cannot be read, or they have too many segments.
        """
        translator, total = UnitTranslator(self._rules), 0
        for each in data:
            with _as_invalid_input():
                self._documents.append(self._kind.read(each, replace(self._reading, max_units=MAX_SEGMENTS)))
            if (total := total + len(self._documents[-1].units)) > MAX_SEGMENTS:
                problem = f"{total:,} segments, at most {MAX_SEGMENTS:,} are allowed; split the document"
                raise InvalidInputError("document", problem)
        self._translations = [{} for _ in data]
        self._driver = DocumentDriver(translator, self._units(), window=self._rows, step_units=STEP_UNITS)
        return total, [(number, found) for number, document in enumerate(self._documents) for found in document.findings]

    def advance(self, results: Results, room: int) -> Step:
        """Record results; returns up to `room` batches of further sentences."""
        units = self._driver.advance(results)
        findings: list[tuple[int, Finding]] = []
        for unit in units:
            assert isinstance(unit.key, int), "the key of a unit is a number"
            document, index = divmod(unit.key, MAX_SEGMENTS)
            self._translations[document][index] = unit.pieces
            findings += [(document, finding) for finding in unit.findings]
        batches = list(self._batches(room))
        sentences = sum(len(unit.pairs) for unit in units)
        return Step(len(units), sentences, findings, batches, self._driver.is_finished, self._driver.can_read)

    def render(self) -> tuple[list[bytes], Findings]:
        """Write the documents; returns them, and the findings of writing. Raises InvalidInputError: one cannot be written."""
        written: list[bytes] = []
        findings: list[tuple[int, Finding]] = []
        for number, document in enumerate(self._documents):
            known = len(document.findings)
            with _as_invalid_input():
                written.append(document.render(self._translations[number]))
            findings += [(number, finding) for finding in document.findings[known:]]
        return written, findings

    def _units(self) -> Iterator[tuple[int, Unit]]:
        """Yield the units of all documents, with keys that are numbers."""
        for number, document in enumerate(self._documents):
            for index, unit in enumerate(document.units):
                yield number * MAX_SEGMENTS + index, unit

    def _batches(self, room: int) -> Iterator[Sequence[SentenceRequest]]:
        while room and (requests := self._driver.take(BATCH_ROWS)):
            yield requests
            room -= 1


def document_error(error: DocumentError) -> InvalidInputError:
    """Convert an error of a document or of its read options."""
    if isinstance(error, OptionError):
        return InvalidInputError(f"config.read_options.{error.field}", error.problem)
    return InvalidInputError("document", str(error))


def unpacked_bytes(data: bytes) -> int:
    """Return the size of a document; of an archive that of its members as declared, above which nothing is unpacked."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:  # other data may stand before it
            return sum(member.file_size for member in archive.infolist())
    except Exception:
        return len(data)


@contextmanager
def _as_invalid_input() -> Iterator[None]:
    try:
        yield
    except DocumentError as error:
        raise document_error(error) from error


def serve(calls: BinaryIO, results: BinaryIO, most_bytes: int) -> None:
    """Receive the work, then answer calls of its methods until the end of the input; it may take so much memory."""
    if sys.platform != "win32":
        import resource  # noqa: PLC0415 Unix only

        resource.setrlimit(resource.RLIMIT_DATA, (most_bytes, most_bytes))
    work: DocumentWork = _received(calls)
    while (call := _received(calls)) is not None:
        name, arguments = call
        try:
            answer: tuple[Any, ...] = (getattr(work, name)(*arguments),)
        except InvalidInputError as error:
            answer = error.field, error.problem
        except MemoryError:
            answer = "document", f"it needs more than {most_bytes:,} bytes of memory; split it"
        except Exception:
            answer = None, None, traceback.format_exc()
        results.writelines(framed(answer))
        results.flush()


def _received(calls: BinaryIO) -> Any:
    header = calls.read(SIZE.size)
    return pickle.loads(calls.read(*SIZE.unpack(header))) if header else None


def framed(value: Any) -> Iterable[bytes]:
    """Return a value as it is sent: its size, then the value, pickled."""
    data = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    return SIZE.pack(len(data)), data


def main(niceness: int) -> None:
    """Be the process of one document, which ends with the server."""
    depend_on_parent()
    give_way(niceness)
    gc.set_threshold(GC_OBJECTS)
    output = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # nothing else may be written between the results
    serve(sys.stdin.buffer, output, max(LEAST_BYTES, usable_memory() // 2))


if __name__ == "__main__":
    main(int(sys.argv[1]))
