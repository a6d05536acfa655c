"""Checkpoint folder -> bundle, parity included: what fails the comparison is not written."""

import hashlib
import json
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx
import torch

from triptych_client.version import __version__
from triptych_export.bundle_files import PRECISIONS, STABLE_PRECISION, needed_files, write_manifest
from triptych_export.card import write_card
from triptych_export.errors import SourceError
from triptych_export.family import Family
from triptych_export.image_family import ImageFamily
from triptych_export.shortlist import SHORT_PRECISION
from triptych_export.text_family import TextFamily
from triptych_export.tracing import OPSET
from triptych_export.translation_family import TranslationFamily
from triptych_serving.bundle import open_bundle
from triptych_serving.manifest import FILE_NAME, read_manifest
from triptych_serving.session import RUNTIME_VERSION
from triptych_training.checkpoint import ARCHITECTURE as TRANSFORMER
from triptych_training.config import read_architecture
from triptych_training.encoder_checkpoint import BERT, VIT

DEFAULT_PRECISIONS = ("int8", "fp32")
FAMILIES: Mapping[str, Callable[[Path, Sequence[str]], Family]] = {
    TRANSFORMER: TranslationFamily,
    BERT: TextFamily,
    VIT: ImageFamily,
}


@dataclass(frozen=True)
class ExportOptions:
    """What to write.

    Args:
        repository: where models live; the bundle becomes `<repository>/<name>/<version>`.
        name: the model's name; empty: `<source>-<target>`, or the task.
        version: 0: the next free one.
        precisions: those to ship; the first is the default. None: int8, fp32, and int8-shortlist where there is a
            shortlist. Parity is always shown on fp32.
        valid: files for parity instead of the sample in the checkpoint folder: sentence pairs, lines of text, or images.
        notes: Markdown for the model card: data, licence, intended use.
        shortlist: files of sentence pairs, best those of the training, that a translation model's shortlist is learnt from;
            empty: it gets none.
    """

    repository: Path
    name: str = ""
    version: int = 0
    precisions: Sequence[str] | None = None
    valid: Sequence[str] = ()
    notes: str = ""
    shortlist: Sequence[str] = ()

    @property
    def shipped(self) -> Sequence[str]:
        """The precisions."""
        usual = (*DEFAULT_PRECISIONS, SHORT_PRECISION) if self.shortlist else DEFAULT_PRECISIONS
        return usual if self.precisions is None else self.precisions


def export(checkpoint_folder: Path, options: ExportOptions, say: Callable[[str], None]) -> Path:
    """Export a checkpoint; returns the bundle's folder.

    Args:
        checkpoint_folder: what a training wrote.
        options: what to write.
        say: is told about progress, a line at a time.

    Raises:
        ExportError: the checkpoint cannot be exported, or its bundle would answer differently.
        TrainingError: checkpoint or samples cannot be read.
    """
    _check_precisions(options)
    family = _load(checkpoint_folder, options)
    target = _target(options.name or family.default_name, options)
    with _workplace(options.repository) as work:
        full, shipped = work / "full", work / "shipped"
        family.write(full, say)
        parity, metrics = family.measure(full, say)
        training = _without_folders(family.provenance)
        provenance = _provenance(checkpoint_folder, training)
        _ship(full, shipped, options, {"parity": parity, "metrics": metrics, "provenance": provenance})
        card = write_card(target.parent.name, family.describe(), read_manifest(shipped), training, options.notes)
        (shipped / "MODEL_CARD.md").write_text(card, encoding="utf-8")
        write_manifest(shipped, json.loads((shipped / FILE_NAME).read_text(encoding="utf-8")))
        open_bundle(shipped)
        target.parent.mkdir(exist_ok=True)
        shipped.replace(target)
    return target


def _check_precisions(options: ExportOptions) -> None:
    if SHORT_PRECISION in options.shipped and not options.shortlist:
        raise SourceError(f"precision: {SHORT_PRECISION} is learnt from sentence pairs; name them with --shortlist")
    if options.shortlist and SHORT_PRECISION not in options.shipped:
        raise SourceError(f"shortlist: serves {SHORT_PRECISION} alone, which is not among the precisions to ship")
    known = (*PRECISIONS, STABLE_PRECISION, *([SHORT_PRECISION] if options.shortlist else []))
    unknown = [precision for precision in options.shipped if precision not in known]
    if unknown or not options.shipped:
        raise SourceError(f"precision: {', '.join(unknown) or 'none'} is unknown; choose from {', '.join(known)}")


def _load(folder: Path, options: ExportOptions) -> Family:
    architecture = read_architecture(folder)
    if architecture not in FAMILIES:
        raise SourceError(f"{folder}: architecture {architecture!r} is unknown; supported: {', '.join(FAMILIES)}")
    stable = STABLE_PRECISION in options.shipped
    if architecture == TRANSFORMER:
        return TranslationFamily(folder, options.valid, options.shortlist, stable)
    for name, wanted in (("shortlist", options.shortlist), (f"precision {STABLE_PRECISION}", stable)):
        if wanted:
            raise SourceError(f"{name}: only translation models have one; {folder} is a {architecture}")
    return FAMILIES[architecture](folder, options.valid)


@contextmanager
def _workplace(repository: Path) -> Iterator[Path]:
    """A scratch folder on the repository's own disk; a failed export leaves no repository that was not there before."""
    new = not repository.exists()
    repository.mkdir(parents=True, exist_ok=True)
    try:
        with tempfile.TemporaryDirectory(dir=repository, prefix=".export-") as work:
            yield Path(work)
    finally:
        if new and not any(repository.iterdir()):
            repository.rmdir()


def _target(name: str, options: ExportOptions) -> Path:
    if Path(name).name != name or name.startswith("."):
        raise SourceError(f"name: {name!r} is not a plain folder name")
    model = options.repository / name
    taken = {int(p.name) for p in model.iterdir() if p.name.isascii() and p.name.isdigit()} if model.is_dir() else set()
    version = options.version or max(taken, default=0) + 1
    if version in taken:
        raise SourceError(f"version: {model / str(version)} exists already; choose another number or remove it")
    return model / str(version)


def _provenance(folder: Path, training: dict[str, Any]) -> dict[str, Any]:
    return {
        "checkpoint_sha256": hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest(),
        "exporter": f"triptych {__version__}",
        "torch": torch.__version__,
        "onnx": onnx.__version__,
        "onnxruntime": RUNTIME_VERSION,
        "opset": OPSET,
        "training": training,
    }


def _without_folders(provenance: Mapping[str, Any]) -> dict[str, Any]:
    """The data's file names: in which folders they lay is nobody's business."""
    recipe = dict(provenance.get("recipe", {}))
    for key, value in recipe.items():
        if isinstance(value, list | tuple) and all(isinstance(path, str) for path in value):
            recipe[key] = ["::".join(Path(part).name for part in path.split("::")) for path in value]
        elif isinstance(value, str) and "/" in value:
            recipe[key] = Path(value).name
    return {**provenance, "recipe": recipe} if recipe else dict(provenance)


def _ship(full: Path, shipped: Path, options: ExportOptions, facts: dict[str, Any]) -> None:
    """Copy what was asked for: what belongs to other precisions alone stays behind."""
    shipped.mkdir()
    manifest = json.loads((full / FILE_NAME).read_text(encoding="utf-8"))
    needed = {p: needed_files(full, graphs) for p, graphs in read_manifest(full).precisions.items()}
    wanted = set().union(*(needed[precision] for precision in options.shipped))
    for name in manifest["files"].keys() - (set().union(*needed.values()) - wanted):
        shutil.move(full / name, shipped / name)
    manifest["precisions"] = {p: manifest["precisions"][p] for p in options.shipped}
    manifest["default_precision"] = options.shipped[0]
    write_manifest(shipped, {**manifest, **facts})
