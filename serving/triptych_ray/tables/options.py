"""The options of a job on a cluster."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property

from triptych.version import __version__
from triptych_documents.rules import TranslationRules
from triptych_embedded.request import TranslationRequest
from triptych_embedded.sentences import TranslatorIdentity


@dataclass(frozen=True, kw_only=True)
class TableOptions:
    """Options of a table job. Raises ValueError: a number is out of range, or the two columns are the same."""

    files: tuple[tuple[str, str], ...]
    """Input files, each with the name of its output: paths, or URIs that pyarrow supports (`s3://`). Every node must have
    access to them."""
    out: str  # folder of the output files; path or URI
    column: str = "text"  # column to translate, of Parquet and JSON lines
    output_column: str = "translation"  # column of the translations
    format: str = "text"  # format of each text, which is a document of its own
    rows: int = 2_000  # rows per chunk: the work of one task, and what is repeated when a worker dies
    workers: int = 0  # number of engines; 0: one per GPU if the request is for GPUs, else one per node
    cpus: int = 0  # CPUs per engine; 0: all of a node, or 1 beside a GPU
    address: str = ""  # address of the cluster for `ray.init`; empty: RAY_ADDRESS, else a local cluster
    overwrite: bool = False  # replace output files that no job wrote, or that were changed since
    rules: TranslationRules = field(default_factory=TranslationRules)  # for all texts
    request: TranslationRequest = field(default_factory=TranslationRequest)
    """Which model, and how it decodes; its repository must be at the same path on every node."""
    identity: TranslatorIdentity | None = None
    """Identity of that model; the job finds it, and that of every engine must be equal."""

    def __post_init__(self) -> None:
        for name, least in (("rows", 1), ("workers", 0), ("cpus", 0)):
            if (value := getattr(self, name)) < least:
                raise ValueError(f"{name} is {value}, must be {least} or more")
        if self.column == self.output_column:
            raise ValueError(f"output_column is {self.column!r}, which is the column that is translated")

    @cached_property
    def names(self) -> Mapping[str, str]:
        """Name of the output of each input."""
        return dict(self.files)

    @cached_property
    def fingerprint(self) -> str:
        """Hash of everything that the output depends on: jobs with equal ones can share part files."""
        values = asdict(replace(self, files=()))  # there may be many
        for name in ("files", "out", "workers", "cpus", "address", "overwrite"):
            del values[name]
        if self.identity is not None:  # it says more than the request does
            values["request"] = asdict(self.request.decoding)
        return hashlib.sha256(repr((__version__, values)).encode()).hexdigest()[:16]
