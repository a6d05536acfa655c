"""A translator without a model, documents without a format, and jobs with them."""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from triptych_cli.common.progress import ProgressLine
from triptych_cli.documents.discovery import Selection, discover
from triptych_cli.documents.document_files import FilePolicy
from triptych_cli.documents.job import DocumentJob, JobResult, run_job
from triptych_cli.documents.stored import Database
from triptych_documents.findings import Finding
from triptych_documents.format import ReadOptions
from triptych_documents.rules import TranslationRules
from triptych_documents.sentences import Alignment, Refusal, SentenceRequest, SentenceTranslation
from triptych_documents.unit import Piece, Unit
from triptych_embedded.sentences import SentenceOutcome, TranslatorIdentity

ENGLISH_GERMAN = TranslatorIdentity("upper", "1", "fp32", "", "en", "de")


@dataclass
class UpperCaseTranslator:
    """Translates into capitals, the last request first, a few at a time."""

    identity: TranslatorIdentity = ENGLISH_GERMAN
    window: int = 8
    at_once: int = 3
    requests: list[SentenceRequest] = field(default_factory=list)
    most_pending: int = 0
    _todo: deque[SentenceRequest] = field(default_factory=deque)

    def submit(self, requests: Sequence[SentenceRequest]) -> None:
        self.requests += requests
        self._todo.extend(requests)
        self.most_pending = max(self.most_pending, len(self._todo))

    def take(self, patience_seconds: float) -> list[SentenceOutcome]:
        taken = [self._todo.pop() for _ in range(min(self.at_once, len(self._todo)))]
        return [(request, self.translate(request)) for request in taken]

    def translate(self, request: SentenceRequest) -> SentenceTranslation | Refusal:
        if "refuse" in request.text:
            return Refusal("it will not")
        spans = [(0, len(request.text))]
        return SentenceTranslation(request.text.upper(), Alignment(spans, spans, [[1.0]]) if request.aligned else None)


@dataclass
class LineDocument:
    """A document with one unit per line."""

    units: Sequence[Unit]
    findings: Sequence[Finding] = ()

    def render(self, translations: Mapping[int, Sequence[Piece]]) -> bytes:
        texts = ["".join(map(str, translations.get(index, unit.pieces))) for index, unit in enumerate(self.units)]
        return "".join(f"{text}\n" for text in texts).encode()


def lines(*texts: str) -> LineDocument:
    return LineDocument([Unit((text,), f"line {number}") for number, text in enumerate(texts, start=1)])


def run(
    source: Path,
    out: Path,
    journal: str = "",
    format_name: str = "",
    translator: UpperCaseTranslator | None = None,
    is_stopped: Callable[[], bool] = lambda: False,
    **policy: object,
) -> JobResult:
    """Run a job on a folder; its journal is in `out` unless named."""
    out.mkdir(exist_ok=True)
    how = FilePolicy(out, ReadOptions(), **policy)  # type: ignore[arg-type]
    beside = how.bilingual.suffix if how.bilingual else ""
    found = discover([source], out, Selection(format=format_name), how.copies_others, beside)
    with Database(Path(journal or out / ".journal"), alone=True) as database:
        job = DocumentJob(found, how, TranslationRules(), database)
        return run_job(job, translator or UpperCaseTranslator(), ProgressLine(None, 1, 1), is_stopped)


def write(folder: Path, files: Mapping[str, str]) -> Path:
    """Write these files into a folder and return it."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
    return folder
