"""An engine on one device of the cluster, and what it does with chunks."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from triptych_documents.errors import DocumentError
from triptych_documents.format import find_format as format_of
from triptych_documents.format import load_format
from triptych_embedded.repository import embedded_repository
from triptych_embedded.request import BackendError
from triptych_embedded.sentence_translator import EmbeddedTranslating
from triptych_ray.tables.chunk import Chunk
from triptych_ray.tables.files import kind_of
from triptych_ray.tables.options import TableOptions
from triptych_ray.tables.parts import Parts
from triptych_ray.tables.problems import problem_of
from triptych_ray.tables.texts import Translated, translate_texts


class Worker:
    """Loads the model once; Ray Data calls it with chunks.

    Args:
        options: of the job.
        cpus: threads of the engine.

    Raises:
        BackendError: the model cannot be loaded, or is not the one that the job is for.
    """

    def __init__(self, options: TableOptions, cpus: int) -> None:
        self._options = options
        self._format = load_format(format_of(name=options.format))
        request = options.request
        # Entered for as long as the process lives.
        self._translating = EmbeddedTranslating(request, request.models or embedded_repository(), cpus).__enter__()
        identity = self._translating.identity
        if options.identity not in (None, identity):
            raise BackendError(f"the model here is {identity.text}, where the job was started it is {options.identity.text}")
        source, target = identity.source_language, identity.target_language
        self._rules = replace(options.rules, source_language=source, target_language=target)

    def __call__(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """One row says what became of one chunk.

        Raises:
            BackendError: the engine works no more.
        """
        chunks = [Chunk(str(path), *map(int, numbers)) for path, *numbers in zip(*_columns(batch), strict=True)]
        reports = [json.dumps(self._translate(chunk)) for chunk in chunks]
        return {"path": np.array([chunk.path for chunk in chunks]), "report": np.array(reports)}

    def _translate(self, chunk: Chunk) -> dict[str, Any]:
        """Whatever is wrong costs the chunk's file alone, but for the engine."""
        try:
            return {"number": chunk.number, "rows": self._write(chunk)}
        except BackendError:
            raise
        except DocumentError as error:  # which names the place
            return {"number": chunk.number, "error": str(error)}
        except Exception as error:
            return {"number": chunk.number, "error": f"{chunk.path}: chunk {chunk.number}: {problem_of(error)}"}

    def _write(self, chunk: Chunk) -> int:
        """How many rows there were."""
        parts = Parts(self._options, chunk.path)
        rows = kind_of(parts.source).read(chunk, self._options)
        found = translate_texts(rows.texts, self._format, self._rules, self._translating)
        parts.write(chunk.number, lambda stream: rows.write([one.text for one in found], stream), _findings(chunk, found))
        return len(found)


def _columns(batch: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(batch[name] for name in ("path", "number", "start", "rows"))


def _findings(chunk: Chunk, found: list[Translated]) -> list[dict[str, Any]]:
    return [
        {"chunk": chunk.number, "row": row, **finding.values()} for row, one in enumerate(found) for finding in one.findings
    ]
