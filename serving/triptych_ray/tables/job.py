"""The driver of a job: find the missing chunks, have them translated, and complete the files."""

from __future__ import annotations

import json
import logging
import os
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from triptych_documents.errors import DocumentError
from triptych_documents.format import find_format
from triptych_embedded.engine import identity_of
from triptych_embedded.models import backend_errors
from triptych_embedded.request import BackendError, TranslationRequest
from triptych_embedded.sentences import TranslatorIdentity
from triptych_ray.tables.files import Chunk, table_format
from triptych_ray.tables.options import TableOptions
from triptych_ray.tables.parts import FileParts
from triptych_ray.tables.worker import Worker, problem_of
from triptych_serving.bundle.bundle import Bundle
from triptych_serving.bundle.manifest import AnyTranslationManifest, read_manifest
from triptych_serving.errors import BundleError
from triptych_serving.repository.placement import CPU_ALONE, Hardware, place
from triptych_serving.repository.repository import VersionFolder, chosen_models
from triptych_serving.runtime.device import CPU, Device
from triptych_serving.runtime.device_selection import AUTO
from triptych_serving.text.languages import has_pair, takes_any

FoundModel = tuple[VersionFolder, AnyTranslationManifest]
GPU = Hardware((Device("cuda"),), needed=True)


@dataclass(frozen=True)
class TableProgress:
    """The progress of a job."""

    chunks: int  # done
    rows: int  # done
    of_rows: int
    files: int  # complete


@dataclass
class TableReport:
    """The result of a job."""

    files: dict[str, str] = field(default_factory=dict)  # input to output, of complete files
    skipped: list[str] = field(default_factory=list)  # complete before the job began
    failed: dict[str, list[str]] = field(default_factory=dict)  # input to its errors
    findings: dict[str, list[dict[str, Any]]] = field(default_factory=dict)  # input to its findings
    rows: int = 0  # translated by this run


class ClusterError(DocumentError):
    """The cluster failed as a whole."""


def run(options: TableOptions, on_progress: Callable[[TableProgress], None] = lambda _: None) -> TableReport:
    """Translate what is missing, on the cluster that Ray is connected to, or a local one.

    Raises:
        DocumentError: two inputs would have one output, or the format is unknown.
        ClusterError: the model is not accessible here, or the cluster or the model on it failed; finished chunks are kept.
    """
    _check(options)
    options = _with_model(options)
    report, pending = TableReport(), _PendingFiles(options)
    for path, _ in options.files:
        pending.add(path, report)
    for path, result in _translated(options, pending.missing):
        pending.take(path, result, report)
        on_progress(pending.progress(report))
    return report


class _PendingFiles:
    """Files that are not complete, with their chunks."""

    def __init__(self, options: TableOptions) -> None:
        self.missing: list[Chunk] = []
        self._options = options
        self._counts: dict[str, int] = {}  # chunks of each file
        self._left: dict[str, set[int]] = {}
        self._total = 0

    def add(self, path: str, report: TableReport) -> None:
        parts = FileParts(self._options, path)
        try:
            if parts.is_done:
                report.skipped.append(path)
                report.findings[path] = parts.findings
                return
            parts.check()
            chunks = table_format(parts.source).chunks(parts.source, self._options)
            missing = [chunk for chunk in chunks if not parts.part(chunk.number).is_file]
        except Exception as error:  # whatever is wrong with this file, the others are translated
            report.failed[path] = [problem_of(error)]
            return
        self._counts[path], self._left[path] = len(chunks), {chunk.number for chunk in missing}
        self.missing += missing
        self._total += sum(chunk.rows for chunk in missing)
        if not missing:
            self._finish(path, report)

    def take(self, path: str, result: dict[str, Any], report: TableReport) -> None:
        if error := result.get("error"):
            report.failed.setdefault(path, []).append(error)
            return
        report.rows += result["rows"]
        self._left[path].discard(result["number"])
        if not self._left[path]:
            self._finish(path, report)

    def progress(self, report: TableReport) -> TableProgress:
        left = sum(map(len, self._left.values()))
        complete = len(report.files) + len(report.skipped)
        return TableProgress(len(self.missing) - left, report.rows, self._total, complete)

    def _finish(self, path: str, report: TableReport) -> None:
        parts = FileParts(self._options, path)
        try:
            parts.finish(self._counts[path])
            report.findings[path] = parts.findings
        except Exception as error:  # as above
            report.failed.setdefault(path, []).append(problem_of(error))
        else:
            report.files[path] = parts.output.place


def _with_model(options: TableOptions) -> TableOptions:
    """Settle here which model the engines load, so that all of an output is from one model."""
    try:
        identity = find_identity(options.request)
    except (BackendError, OSError) as error:
        models = options.request.models or "the package's own models"
        raise ClusterError(
            f"the models must be readable where the job is started, as on every node ({models}): {error}"
        ) from error
    device = "cuda" if wants_gpu(options.request) else "cpu"  # Ray shows each engine only the GPU that it has
    return replace(options, identity=identity, request=replace(options.request, model=identity.model, device=device))


def _translated(options: TableOptions, chunks: Sequence[Chunk]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the file and the report of each chunk, as they are finished."""
    if not chunks:
        return
    import ray.data  # noqa: PLC0415 slow
    from ray.exceptions import RayError  # noqa: PLC0415 slow

    if not ray.is_initialized():
        _connect(options)
    ray.data.DataContext.get_current().enable_progress_bars = False
    workers, cpus, gpus = _shares(options, ray.nodes())
    rows = list(map(asdict, chunks))
    results = ray.data.from_items(rows, override_num_blocks=len(rows)).map_batches(
        Worker,
        fn_constructor_args=(options, cpus),
        batch_size=1,
        compute=ray.data.ActorPoolStrategy(size=min(workers, len(rows))),
        num_cpus=cpus,
        num_gpus=gpus,
    )
    try:
        for row in results.iter_rows():
            yield row["path"], json.loads(row["report"])
    except RayError as error:
        raise ClusterError(str(error).strip().splitlines()[-1]) from error


def _connect(options: TableOptions) -> None:
    """Connect to the cluster. Ray's own messages are suppressed, as errors are raised."""
    import ray  # noqa: PLC0415 slow

    for name in ("ray", "ray.data"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    address = options.address or os.environ.get("RAY_ADDRESS") or "local"
    ray.init(address, log_to_driver=False, logging_level=logging.CRITICAL)


def _shares(options: TableOptions, nodes: Sequence[dict[str, Any]]) -> tuple[int, int, int]:
    """Return the number of workers, and the CPUs and GPUs of each."""
    resources = [node["Resources"] for node in nodes if node["Alive"]]
    if wants_gpu(options.request):
        gpus = int(sum(each.get("GPU", 0) for each in resources))
        if not gpus:
            raise ClusterError(f"--device {options.request.device}: no node of the cluster has a GPU")
        return options.workers or gpus, options.cpus or 1, 1
    counts = [int(each["CPU"]) for each in resources if each.get("CPU", 0) >= 1]
    cpus = options.cpus or min(counts, default=1)
    return options.workers or max(1, sum(count // cpus for count in counts)), cpus, 0


def _check(options: TableOptions) -> None:
    find_format(name=options.format)
    names: dict[str, list[str]] = defaultdict(list)
    for path, name in options.files:
        names[name].append(path)
    for name, paths in names.items():
        if len(paths) > 1:
            raise DocumentError(f"{' and '.join(paths)} would both be written to {name} in {options.out}")


def wants_gpu(request: TranslationRequest) -> bool:
    """Tell whether each engine has a GPU. With `auto` none has: the nodes of a cluster differ, and all load the same graphs."""
    return request.device not in (AUTO, str(CPU))


def find_identity(request: TranslationRequest) -> TranslatorIdentity:
    """Return the identity that an engine with this request will have; only manifests are read.

    Raises:
        BackendError: the repository cannot be read, or not exactly one of its models fits.
    """
    with backend_errors():
        entry, manifest = _find(request.repository, request)
        precision = place(Bundle(entry.folder, manifest), request.precision, GPU if wants_gpu(request) else CPU_ALONE).precision
        return identity_of(entry, precision, manifest, request)


def _find(repository: Path, request: TranslationRequest) -> FoundModel:
    there = list(_models(repository, request))
    able = [model for model in there if len(there) == 1 or has_pair(model[1], request.source_language, request.target_language)]
    if request.source_language or request.target_language:  # prefer models that name the languages
        able = [model for model in able if not takes_any(model[1])] or able
    if not able:
        raise BackendError(f"{repository}: no model translates {request.model or 'these languages'}")
    if len(able) > 1:
        names = ", ".join(sorted(entry.name for entry, _ in able))
        raise BackendError(f"{repository}: several models match, set `model` to one of: {names}")
    return able[0]


def _models(repository: Path, request: TranslationRequest) -> Iterator[FoundModel]:
    """Yield the translation models, each in the version that is asked for, or that a server would serve."""
    for folder in chosen_models(repository, request.model).values():
        entry = folder.find(request.model_version)
        try:
            manifest = read_manifest(entry.folder)
        except BundleError:
            if request.model:
                raise
            continue  # as a server does: the other models may fit
        if isinstance(manifest, AnyTranslationManifest):
            yield entry, manifest
