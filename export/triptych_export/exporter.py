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
from onnx import ModelProto
from sacrebleu.metrics.bleu import BLEU

from triptych_client.version import __version__
from triptych_export.card import write_card
from triptych_export.errors import SourceError
from triptych_export.graphs import fold_scales
from triptych_export.parity import Sample, agreement, check_parity, decode, make_sample
from triptych_export.quantization import quantize
from triptych_export.tracing import OPSET, trace_encoder, trace_step
from triptych_export.weights import WeightsFile
from triptych_serving.bundle import open_bundle, sha256
from triptych_serving.manifest import FILE_NAME, FORMAT, TRANSLATION, read_manifest
from triptych_serving.session import RUNTIME_VERSION
from triptych_training.checkpoint import ARCHITECTURE, Checkpoint, load_checkpoint
from triptych_training.corpus import Pair, read_pairs

PRECISIONS = ("fp32", "int8")
PARITY_SENTENCES = 300
HEAD_MULTIPLE = 8  # of GroupQueryAttention
QUALITY_SLOTS = 16


@dataclass(frozen=True)
class ExportOptions:
    """What to write.

    Args:
        repository: where models live; the bundle becomes `<repository>/<name>/<version>`.
        name: the model's name; empty: `<source>-<target>`.
        version: 0: the next free one.
        precisions: those to ship; the first is the default. Parity is always shown on fp32.
        valid: files of sentence pairs for parity and BLEU; empty: the sample in the checkpoint folder.
        notes: Markdown for the model card: data, licence, intended use.
    """

    repository: Path
    name: str = ""
    version: int = 0
    precisions: Sequence[str] = ("int8", "fp32")
    valid: Sequence[str] = ()
    notes: str = ""


def export(checkpoint_folder: Path, options: ExportOptions, say: Callable[[str], None]) -> Path:
    """Export a checkpoint; returns the bundle's folder.

    Args:
        checkpoint_folder: what a training wrote.
        options: what to write.
        say: is told about progress, a line at a time.

    Raises:
        ExportError: the checkpoint cannot be exported, or its bundle would answer differently.
        TrainingError: checkpoint or sentences cannot be read.
    """
    unknown = [precision for precision in options.precisions if precision not in PRECISIONS]
    if unknown or not options.precisions:
        raise SourceError(f"precision: {', '.join(unknown) or 'none'} is unknown; choose from {', '.join(PRECISIONS)}")
    checkpoint = load_checkpoint(checkpoint_folder)
    _check_shape(checkpoint)
    pairs = _pairs(checkpoint_folder, checkpoint, options)
    target = _target(checkpoint, options)
    with _workplace(options.repository) as work:
        full, shipped = work / "full", work / "shipped"
        _write_all(checkpoint, full, say)
        parity, metrics = _measure(checkpoint, full, pairs, say)
        provenance = _provenance(checkpoint_folder, checkpoint)
        _ship(full, shipped, options, {"parity": parity, "metrics": metrics, "provenance": provenance})
        card = write_card(target.parent.name, read_manifest(shipped), checkpoint.provenance, options.notes)
        (shipped / "MODEL_CARD.md").write_text(card, encoding="utf-8")
        _write_manifest(shipped, json.loads((shipped / FILE_NAME).read_text(encoding="utf-8")))
        open_bundle(shipped)
        target.parent.mkdir(exist_ok=True)
        shipped.replace(target)
    return target


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


def _check_shape(checkpoint: Checkpoint) -> None:
    config = checkpoint.model.config
    size = config.model_dim // config.heads
    if size % HEAD_MULTIPLE:
        raise SourceError(
            f"model_dim {config.model_dim} with {config.heads} heads: a head has {size} dimensions; "
            f"ONNX Runtime's attention takes multiples of {HEAD_MULTIPLE}"
        )


def _pairs(folder: Path, checkpoint: Checkpoint, options: ExportOptions) -> list[Pair]:
    pairs = read_pairs(options.valid) if options.valid else list(checkpoint.samples)
    if not pairs:
        raise SourceError(f"{folder}: holds no sentences for the parity check; name a file of pairs with --valid")
    return pairs


def _target(checkpoint: Checkpoint, options: ExportOptions) -> Path:
    name = options.name or f"{checkpoint.source_language}-{checkpoint.target_language}"
    if Path(name).name != name or name.startswith("."):
        raise SourceError(f"name: {name!r} is not a plain folder name")
    model = options.repository / name
    taken = {int(p.name) for p in model.iterdir() if p.name.isascii() and p.name.isdigit()} if model.is_dir() else set()
    version = options.version or max(taken, default=0) + 1
    if version in taken:
        raise SourceError(f"version: {model / str(version)} exists already; choose another number or remove it")
    return model / str(version)


def _write_all(checkpoint: Checkpoint, folder: Path, say: Callable[[str], None]) -> None:
    """Graphs in every precision, tokenizer and a first manifest."""
    folder.mkdir()
    folded = fold_scales(checkpoint.model)
    say("tracing the encoder")
    encoder = trace_encoder(folded)
    say("tracing the step")
    step = trace_step(folded)
    for precision in PRECISIONS:
        weights = WeightsFile(folder / f"weights.{precision}.bin")
        for kind, graph in (("encoder", encoder), ("step", step)):
            _write_graph(graph, folder / f"{kind}.{precision}.onnx", weights, precision)
    checkpoint.tokenizer.save(str(folder / "tokenizer.json"))
    _write_manifest(folder, _manifest(checkpoint))


def _write_graph(graph: ModelProto, path: Path, weights: WeightsFile, precision: str) -> None:
    model = quantize(graph) if precision == "int8" else ModelProto()
    if precision == "fp32":
        model.CopyFrom(graph)
    for node in model.graph.node:  # traces carry Python stack lines; nobody serves those
        del node.metadata_props[:]
        node.doc_string = ""
    del model.metadata_props[:], model.graph.metadata_props[:], model.graph.value_info[:]
    model.producer_name, model.producer_version, model.doc_string = "triptych", __version__, ""
    weights.externalize(model)
    path.write_bytes(model.SerializeToString(deterministic=True))


def _manifest(checkpoint: Checkpoint) -> dict[str, Any]:
    config = checkpoint.model.config
    return {
        "format": FORMAT,
        "task": TRANSLATION,
        "family": ARCHITECTURE,
        "source_languages": [checkpoint.source_language],
        "target_languages": [checkpoint.target_language],
        "tokens": {"pad": config.pad_id, "start": config.bos_id, "end": config.eos_id},
        "limits": {"max_source_tokens": config.max_positions, "max_target_tokens": config.max_positions},
        "decoder": {
            "layers": config.decoder_layers,
            "heads": config.heads,
            "head_dim": config.model_dim // config.heads,
        },
        "precisions": {p: {"encoder": f"encoder.{p}.onnx", "step": f"step.{p}.onnx"} for p in PRECISIONS},
        "default_precision": "fp32",
        "generation": {"max_length": config.max_positions - 1},
        "provenance": {},
        "metrics": {},
        "parity": {},
    }


def _write_manifest(folder: Path, manifest: dict[str, Any]) -> None:
    """Write `bundle.json` with size and SHA-256 of everything beside it."""
    files = sorted(path for path in folder.iterdir() if path.name != FILE_NAME)
    manifest["files"] = {path.name: {"sha256": sha256(path), "bytes": path.stat().st_size} for path in files}
    (folder / FILE_NAME).write_text(json.dumps(manifest, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _measure(
    checkpoint: Checkpoint, folder: Path, pairs: Sequence[Pair], say: Callable[[str], None]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Parity of fp32, agreement of int8, BLEU of both."""
    config = checkpoint.model.config
    encodings = checkpoint.tokenizer.encode_batch([source for source, _ in pairs])
    sources = [encoding.ids for encoding in encodings if len(encoding.ids) <= config.max_positions]
    references = [t for (_, t), e in zip(pairs, encodings, strict=True) if len(e.ids) <= config.max_positions]
    say("decoding in PyTorch")
    sample = make_sample(checkpoint.model, _spread(sources, PARITY_SENTENCES), config.max_positions - 1)
    say("comparing the bundle with PyTorch, token by token")
    parity: dict[str, Any] = {"fp32": check_parity(folder, "fp32", sample)}
    parity["int8"] = _compare_int8(folder, sample)
    say("measuring BLEU")
    metrics: dict[str, Any] = {"validation_pairs": len(sources)}
    scorer = BLEU()
    bundle = open_bundle(folder)
    for precision in PRECISIONS:
        outputs = decode(bundle, precision, sources, config.max_positions - 1, QUALITY_SLOTS)
        texts = checkpoint.tokenizer.decode_batch(outputs)
        metrics[f"bleu_{precision}"] = round(scorer.corpus_score(texts, [references]).score, 2)
    metrics["sacrebleu_signature"] = str(scorer.get_signature())
    return parity, metrics


def _compare_int8(folder: Path, sample: Sample) -> dict[str, float]:
    outputs = decode(open_bundle(folder), "int8", sample.sources, sample.max_length, QUALITY_SLOTS)
    return agreement(sample.expected, outputs)


def _spread(items: Sequence[list[int]], count: int) -> list[list[int]]:
    """`count` items evenly from all of them."""
    return [items[i * len(items) // count] for i in range(count)] if len(items) > count else list(items)


def _provenance(folder: Path, checkpoint: Checkpoint) -> dict[str, Any]:
    return {
        "checkpoint_sha256": hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest(),
        "exporter": f"triptych {__version__}",
        "torch": torch.__version__,
        "onnx": onnx.__version__,
        "onnxruntime": RUNTIME_VERSION,
        "opset": OPSET,
        "training": _without_folders(checkpoint.provenance),
    }


def _without_folders(provenance: Mapping[str, Any]) -> dict[str, Any]:
    """The data's file names: in which folders they lay is nobody's business."""
    recipe = dict(provenance.get("recipe", {}))
    for side in ("train", "valid"):
        if side in recipe:
            recipe[side] = ["::".join(Path(part).name for part in path.split("::")) for path in recipe[side]]
    return {**provenance, "recipe": recipe} if recipe else dict(provenance)


def _ship(full: Path, shipped: Path, options: ExportOptions, facts: dict[str, Any]) -> None:
    """Copy what was asked for."""
    shipped.mkdir()
    manifest = json.loads((full / FILE_NAME).read_text(encoding="utf-8"))
    for name in manifest["files"]:
        precision = next((p for p in PRECISIONS if f".{p}." in name), None)
        if precision is None or precision in options.precisions:
            shutil.move(full / name, shipped / name)
    manifest["precisions"] = {p: manifest["precisions"][p] for p in options.precisions}
    manifest["default_precision"] = options.precisions[0]
    _write_manifest(shipped, {**manifest, **facts})
