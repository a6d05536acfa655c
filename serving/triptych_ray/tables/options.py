"""What a job on a cluster does."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property

from triptych.version import __version__
from triptych_documents.rules import TranslationRules
from triptych_embedded.identity import Identity
from triptych_embedded.request import Request


@dataclass(frozen=True, kw_only=True)
class TableOptions:
    """What a job does.

    Args:
        files: input files, each with the name of its output: paths, or URIs that pyarrow knows (`s3://`); every node must reach
            them.
        out: folder of the output files, likewise.
        column: of Parquet and JSON lines: what is translated.
        output_column: where the translation goes.
        format: what a text is: a document of this format.
        rows: of a chunk: what one task translates, and what is lost when a worker dies.
        workers: engines; 0: one on each GPU where the request is for GPUs, else on each node.
        cpus: of each engine; 0: as many as a node has, or 1 beside a GPU.
        address: of the cluster, as `ray.init` takes it; empty: RAY_ADDRESS, else a cluster of this machine's own.
        overwrite: files at the place of an output that no job wrote, or that were changed since, are replaced.
        rules: for all texts.
        request: which model, and how it decodes; its repository must be at the same place on every node.
        identity: what that model is; found by the job, and every engine's must be equal to it.

    Raises:
        ValueError: a number is out of range, or the columns are one.
    """

    files: tuple[tuple[str, str], ...]
    out: str
    column: str = "text"
    output_column: str = "translation"
    format: str = "text"
    rows: int = 2_000
    workers: int = 0
    cpus: int = 0
    address: str = ""
    overwrite: bool = False
    rules: TranslationRules = field(default_factory=TranslationRules)
    request: Request = field(default_factory=Request)
    identity: Identity | None = None

    def __post_init__(self) -> None:
        for name, least in (("rows", 1), ("workers", 0), ("cpus", 0)):
            if (value := getattr(self, name)) < least:
                raise ValueError(f"{name} is {value}, must be {least} or more")
        if self.column == self.output_column:
            raise ValueError(f"output_column is {self.column!r}, which is the column that is translated")

    @cached_property
    def names(self) -> Mapping[str, str]:
        """Of each input's output."""
        return dict(self.files)

    @cached_property
    def fingerprint(self) -> str:
        """Equal for jobs that make the same of a file: their parts may be mixed."""
        told = asdict(replace(self, files=()))  # there may be many
        for name in ("files", "out", "workers", "cpus", "address", "overwrite"):
            del told[name]
        if self.identity is not None:  # it says more than the request does
            told["request"] = asdict(self.request.decoding)
        return hashlib.sha256(repr((__version__, told)).encode()).hexdigest()[:16]
