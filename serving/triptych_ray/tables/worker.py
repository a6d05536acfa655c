"""A worker: an engine on one device of the cluster that translates chunks."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from triptych_documents.errors import DocumentError
from triptych_documents.format import find_format, load_format
from triptych_embedded.engine import open_sentence_translator
from triptych_embedded.request import BackendError
from triptych_ray.tables.files import Chunk, table_format
from triptych_ray.tables.options import TableOptions
from triptych_ray.tables.parts import FileParts
from triptych_ray.tables.texts import TranslatedText, problem_of, translate_texts


class Worker:
    """Loads the model once; Ray Data calls it with chunks.

    Raises:
        BackendError: the model cannot be loaded, or differs from that of the job.
    """

    def __init__(self, options: TableOptions, cpus: int) -> None:
        self._options = options
        self._format = load_format(find_format(name=options.format))
        self._opened = open_sentence_translator(options.request, cpus)  # open for the lifetime of the process
        self._translator = self._opened.__enter__()
        identity = self._translator.identity
        if options.identity not in (None, identity):
            raise BackendError(f"the model here is {identity.text}, where the job was started it is {options.identity.text}")
        source, target = identity.source_language, identity.target_language
        self._rules = replace(options.rules, source_language=source, target_language=target)

    def __call__(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """Translate chunks; the result has one row with the report of each chunk.

        Raises:
            BackendError: the engine has stopped.
        """
        columns = (batch[name] for name in ("path", "number", "start", "rows"))
        chunks = [Chunk(str(path), *map(int, numbers)) for path, *numbers in zip(*columns, strict=True)]
        reports = [json.dumps(self._translate(chunk)) for chunk in chunks]
        return {"path": np.array([chunk.path for chunk in chunks]), "report": np.array(reports)}

    def _translate(self, chunk: Chunk) -> dict[str, Any]:
        """Translate a chunk. Errors cost its file alone, unless the engine itself fails."""
        try:
            return {"number": chunk.number, "rows": self._write(chunk)}
        except BackendError:
            raise
        except DocumentError as error:  # it names the place
            return {"number": chunk.number, "error": str(error)}
        except Exception as error:
            return {"number": chunk.number, "error": f"{chunk.path}: chunk {chunk.number}: {problem_of(error)}"}

    def _write(self, chunk: Chunk) -> int:
        """Write the part of a chunk and return its number of rows."""
        parts = FileParts(self._options, chunk.path)
        rows = table_format(parts.source).read(chunk, self._options)
        found = translate_texts(rows.texts, self._format, self._rules, self._translator)
        parts.write(chunk.number, lambda stream: rows.write([one.text for one in found], stream), _findings(chunk, found))
        return len(found)


def _findings(chunk: Chunk, found: list[TranslatedText]) -> list[dict[str, Any]]:
    return [
        {"chunk": chunk.number, "row": row, **finding.values()} for row, one in enumerate(found) for finding in one.findings
    ]
