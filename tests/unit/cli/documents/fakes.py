"""A translator without a model, and documents without a format."""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from triptych_documents.findings import Finding
from triptych_documents.sentences import Alignment, Refusal, SentenceRequest, SentenceTranslation
from triptych_documents.unit import Piece, Unit
from triptych_embedded.identity import Identity
from triptych_embedded.translating import Outcome

ENGLISH_GERMAN = Identity("shouting", "1", "fp32", "", "en", "de")


@dataclass
class Shouting:
    """Answers in capitals, the last ask first, a few at a time."""

    identity: Identity = ENGLISH_GERMAN
    window: int = 8
    at_once: int = 3
    asked: list[SentenceRequest] = field(default_factory=list)
    most_under_way: int = 0
    _todo: deque[SentenceRequest] = field(default_factory=deque)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *details: object) -> None:
        return

    def submit(self, asks: Sequence[SentenceRequest]) -> None:
        self.asked += asks
        self._todo.extend(asks)
        self.most_under_way = max(self.most_under_way, len(self._todo))

    def take(self, patience_seconds: float) -> list[Outcome]:
        return [(ask, self.answer(ask)) for ask in [self._todo.pop() for _ in range(min(self.at_once, len(self._todo)))]]

    def answer(self, ask: SentenceRequest) -> SentenceTranslation | Refusal:
        if "refuse" in ask.text:
            return Refusal("it will not")
        spans = [(0, len(ask.text))]
        return SentenceTranslation(ask.text.upper(), Alignment(spans, spans, [[1.0]]) if ask.aligned else None)


@dataclass
class Lines:
    """A document with a unit on each line."""

    units: Sequence[Unit]
    findings: Sequence[Finding] = ()

    def render(self, translations: Mapping[int, Sequence[Piece]]) -> bytes:
        texts = ["".join(map(str, translations.get(index, unit.pieces))) for index, unit in enumerate(self.units)]
        return "".join(f"{text}\n" for text in texts).encode()


def lines(*texts: str) -> Lines:
    return Lines([Unit((text,), f"line {number}") for number, text in enumerate(texts, start=1)])


def write(folder: Path, files: Mapping[str, str]) -> Path:
    """A folder with these files."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
    return folder
