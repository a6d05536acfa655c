"""Export of a checkpoint to a bundle. A bundle that fails the parity check is not written."""

import json
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
import torch

from triptych.version import __version__
from triptych_export.bundle_files import ATTEND, needed_files, write_manifest
from triptych_export.card import write_card
from triptych_export.errors import SourceError
from triptych_export.graphs.attention import write_attention_graph
from triptych_export.graphs.tracing import HALF_OPSET, OPSET
from triptych_export.loading import open_checkpoint
from triptych_export.options import ExportOptions
from triptych_export.parity.gate import check_gate
from triptych_serving.bundle.bundle import open_bundle, sha256
from triptych_serving.bundle.manifest import FILE_NAME, FP16, TextGenerationManifest, TranslationManifest, read_manifest
from triptych_serving.runtime.session import RUNTIME_VERSION
from triptych_training.data.files import FULL

__all__ = ["ExportOptions", "export"]

LOST = ("_not_carried_over", "_read_as_text")  # ends of the names of what a checkpoint has and its bundle has not


def export(checkpoint: str | Path, options: ExportOptions, say: Callable[[str], None]) -> Path:
    """Export a checkpoint; returns the bundle's folder. `say` receives progress, one line at a time.

    `checkpoint` is a folder written by triptych_training or by Hugging Face libraries, a model's name on the Hugging Face hub,
    an ONNX file, or a folder with ONNX files; or a bundle, which gets the attention graphs that older exports did not write.

    Raises:
        ExportError: the checkpoint cannot be exported, or its bundle fails the parity check.
        TrainingError: the checkpoint or the samples cannot be read.
    """
    if (Path(checkpoint) / FILE_NAME).is_file():
        return _with_attention(Path(checkpoint), options, say)
    options.check()
    with _scratch_folder(options.repository) as work:
        family, weights, origin = open_checkpoint(str(checkpoint), options, work)
        lost = {name: value for name, value in family.provenance.items() if name.endswith(LOST)}
        for name, value in {**origin, **lost}.items():
            say(f"{name.replace('_', ' ')}: {value}")
        options = replace(options, precisions=options.precisions or family.default_precisions or options.shipped)
        target = _target(options.name or family.default_name, options)
        full, shipped = work / "full", work / "shipped"
        family.write(full, say)
        parity, metrics = family.measure(full, say)
        allowed = options.allow_inexact or options.allow_untrained
        parity = check_gate(parity, metrics, options.shipped, allowed)
        training = _without_folders(family.provenance)
        provenance = _provenance(weights, training, options.shipped) | dict(origin)
        _ship(full, shipped, options, {"parity": parity, "metrics": metrics, "provenance": provenance})
        card = write_card(target.parent.name, family.describe(), read_manifest(shipped), training, options.notes)
        (shipped / "MODEL_CARD.md").write_text(card, encoding="utf-8")
        write_manifest(shipped, json.loads((shipped / FILE_NAME).read_text(encoding="utf-8")))
        return _place(shipped, target)


def _with_attention(bundle: Path, options: ExportOptions, say: Callable[[str], None]) -> Path:
    """Copy a bundle and add attention graphs, which are derived from its own graphs; returns the copy's folder."""
    if replace(options, repository=Path(), name="", version=0) != ExportOptions(Path()):
        raise SourceError(f"{bundle} is a bundle, which only takes --out, --name and --version; export its checkpoint instead")
    opened = open_bundle(bundle).manifest
    if isinstance(opened, TextGenerationManifest) or (isinstance(opened, TranslationManifest) and opened.decoder.state_vectors):
        raise SourceError(f"{bundle} is a bundle of a model that has no attention graphs; it is complete")
    manifest = json.loads((bundle / FILE_NAME).read_text(encoding="utf-8"))
    target = _target(options.name or bundle.resolve().parent.name, options)
    with _scratch_folder(options.repository) as work:
        copy = shutil.copytree(bundle, work / "copy")
        for precision, graphs in manifest["precisions"].items():
            source = graphs.get("graph") or graphs.get("score")
            if not source:
                raise SourceError(
                    f"{bundle}: {precision} has no graph for scores to derive attention from; export its checkpoint"
                )
            graphs[ATTEND] = f"{ATTEND}.{source.partition('.')[2]}"
            say(f"writing {graphs[ATTEND]}")
            write_attention_graph(copy / source, copy / graphs[ATTEND])
        write_manifest(copy, manifest)
        return _place(copy, target)


@contextmanager
def _scratch_folder(repository: Path) -> Iterator[Path]:
    """Create a scratch folder on the repository's disk. A repository that was created for a failed export is removed.

    Raises:
        SourceError: the disk is full.
    """
    new = not repository.exists()
    repository.mkdir(parents=True, exist_ok=True)
    try:
        with tempfile.TemporaryDirectory(dir=repository, prefix=".export-") as work:
            yield Path(work)
    except OSError as error:
        if error.errno not in FULL or error.filename:  # a write to an open file names none
            raise
        raise SourceError(f"{repository}: the disk is full; free space there, or write to another --out") from error
    finally:
        if new and not any(repository.iterdir()):
            repository.rmdir()


def _place(bundle: Path, target: Path) -> Path:
    """Check a complete bundle and move it to its place."""
    open_bundle(bundle)
    target.parent.mkdir(exist_ok=True)
    try:
        return bundle.replace(target)
    except OSError:
        if not target.exists():
            raise
        raise SourceError(f"version: another export has written {target} meanwhile; export again") from None


def _target(name: str, options: ExportOptions) -> Path:
    # The server leaves out folders whose names are not UTF-8.
    if Path(name).name != name or name.startswith(".") or name.encode(errors="ignore").decode() != name:
        raise SourceError(f"name: {name!r} is not a plain folder name")
    model = options.repository / name
    if model.is_file():
        raise SourceError(f"name: {model} is a file; choose another name or remove it")
    taken = {int(p.name) for p in model.iterdir() if p.name.isascii() and p.name.isdigit()} if model.is_dir() else set()
    version = options.version or max(taken, default=0) + 1
    if version in taken:
        raise SourceError(f"version: {model / str(version)} already exists; choose another number or remove it")
    return model / str(version)


def _provenance(weights: Sequence[Path], training: dict[str, Any], shipped: Sequence[str]) -> dict[str, Any]:
    return {
        "checkpoint_sha256": ", ".join(map(sha256, weights)),
        "exporter": f"triptych {__version__}",
        "torch": torch.__version__,
        "onnx": onnx.__version__,
        "onnxruntime": RUNTIME_VERSION,
        "opset": OPSET,
        **({"opset_fp16": HALF_OPSET} if FP16 in shipped else {}),
        "training": training,
    }


def _without_folders(provenance: Mapping[str, Any]) -> dict[str, Any]:
    """Reduce the recipe's data paths to file names, so that the card shows no local folders."""
    recipe = dict(provenance.get("recipe", {}))
    for key, value in recipe.items():
        if isinstance(value, list | tuple) and all(isinstance(path, str) for path in value):
            recipe[key] = ["::".join(Path(part).name for part in path.split("::")) for path in value]
        elif isinstance(value, str) and "/" in value:
            recipe[key] = Path(value).name
    return {**provenance, "recipe": recipe} if recipe else dict(provenance)


def _ship(full: Path, shipped: Path, options: ExportOptions, facts: dict[str, Any]) -> None:
    """Move the files of the shipped precisions, and the manifest reduced to them."""
    shipped.mkdir()
    manifest = json.loads((full / FILE_NAME).read_text(encoding="utf-8"))
    needed = {p: needed_files(full, graphs) for p, graphs in read_manifest(full).precisions.items()}
    wanted = set().union(*(needed[precision] for precision in options.shipped))
    for name in manifest["files"].keys() - (set().union(*needed.values()) - wanted):
        shutil.move(full / name, shipped / name)
    manifest["precisions"] = {p: manifest["precisions"][p] for p in options.shipped}
    manifest["default_precision"] = options.default
    write_manifest(shipped, {**manifest, **facts})
