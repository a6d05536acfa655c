"""What the translator has answered so far, in a journal or a memory."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from triptych_cli.documents.database import Database, is_unicode
from triptych_cli.documents.packing import pack, unpack
from triptych_documents.sentences import SentenceRequest, SentenceTranslation
from triptych_embedded.identity import Identity

AT_ONCE = 500  # texts of one query; SQLite takes at least 999 parameters
LOOKED_UP = 100_000  # with so many answers of this run, its Work may have forgotten the first
FIND = """
SELECT source, target, truncated, alignment FROM answers WHERE origin = ? AND aligned = ? AND prefix = ? AND source IN ({})
"""


class Answers:
    """Those of one origin: the same model, languages and options. Of one thread.

    Args:
        database: where they are; what is added gets there with `flush`.
        identity: of the origin.
    """

    def __init__(self, database: Database, identity: Identity) -> None:
        self._database = database
        self._new: list[tuple[SentenceRequest, SentenceTranslation]] = []
        with database.transaction() as connection:
            connection.execute(
                "INSERT OR IGNORE INTO origins (identity, source_language, target_language) VALUES (?, ?, ?)",
                (identity.text, identity.source_language, identity.target_language),
            )
            [self._origin] = connection.execute("SELECT id FROM origins WHERE identity = ?", (identity.text,)).fetchone()
            first = connection.execute("SELECT 1 FROM answers WHERE origin = ? LIMIT 1", (self._origin,)).fetchone()
        self._unknown = LOOKED_UP if first is None else 0  # answers to come before there is something to be found

    def find(self, asks: Sequence[SentenceRequest]) -> Mapping[SentenceRequest, SentenceTranslation]:
        """Those that have been answered, in an earlier run or so long ago in this one that its Work has forgotten them."""
        if self._unknown > 0:
            return {}
        found: dict[SentenceRequest, SentenceTranslation] = {}
        with self._database.errors():
            for (aligned, prefix), some in groupby(sorted(asks, key=_kind), _kind):
                texts = [ask.text for ask in some if is_unicode(ask.text)]
                for text, answer in self._find(aligned, prefix, texts):
                    found[SentenceRequest(text, aligned, prefix)] = answer
        return found

    def add(self, ask: SentenceRequest, answer: SentenceTranslation) -> None:
        """Remember an answer; `flush` writes it."""
        self._new.append((ask, answer))

    def flush(self) -> None:
        """Write what is new.

        Raises:
            StoreError: it cannot be written.
        """
        if not self._new:
            return
        origin = self._origin
        rows = [
            (origin, ask.aligned, ask.prefix, ask.text, answer.text, answer.truncated, _packed(answer))
            for ask, answer in self._new
        ]
        with self._database.transaction() as connection:
            connection.executemany("INSERT OR IGNORE INTO answers VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
        self._unknown -= len(rows)
        self._new.clear()

    def _find(self, aligned: bool, prefix: str, texts: Sequence[str]) -> Iterator[tuple[str, SentenceTranslation]]:
        for start in range(0, len(texts), AT_ONCE):
            some = texts[start : start + AT_ONCE]
            query = FIND.format(",".join("?" * len(some)))
            for text, target, truncated, packed in self._database.connection.execute(
                query, (self._origin, aligned, prefix, *some)
            ):
                yield text, SentenceTranslation(target, unpack(packed) if packed else None, bool(truncated))


def _kind(ask: SentenceRequest) -> tuple[bool, str]:
    return ask.aligned, ask.prefix


def _packed(answer: SentenceTranslation) -> bytes | None:
    return pack(answer.alignment) if answer.alignment else None
