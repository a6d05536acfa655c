"""The manifest of a bundle, `bundle.json`: what the files beside it are and how to serve them.

format                1
task                  "translation"
family                the architecture's name, such as "triptych-transformer"
source_languages      BCP 47 codes
target_languages      BCP 47 codes
tokens                pad, start (first decoder input), end: ids
limits                max_source_tokens, max_target_tokens: end of sentence included
decoder               layers, heads, head_dim: the shape of the caches
precisions            name -> {encoder, step: file names}, the files beside them being listed in `files`
default_precision     one of them
generation            defaults of decoding: max_length (tokens, end of sentence not included)
files                 name -> {sha256, bytes}; every file of the bundle but this one
provenance, metrics, parity    for people and tools; not needed to serve
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from triptych_serving.errors import BundleError
from triptych_serving.fields import Fields
from triptych_serving.languages import is_language

FORMAT = 1
FILE_NAME = "bundle.json"
TRANSLATION = "translation"


@dataclass(frozen=True)
class SpecialTokens:
    """Ids."""

    pad: int
    start: int
    end: int


@dataclass(frozen=True)
class Limits:
    """Lengths in tokens, the end of the sentence included."""

    max_source_tokens: int
    max_target_tokens: int


@dataclass(frozen=True)
class DecoderShape:
    """What the caches are allocated from."""

    layers: int
    heads: int
    head_dim: int


@dataclass(frozen=True)
class Graphs:
    """File names of one precision's graphs."""

    encoder: str
    step: str


@dataclass(frozen=True)
class StoredFile:
    """What a file must be."""

    sha256: str
    bytes: int


@dataclass(frozen=True)
class Generation:
    """Defaults of decoding."""

    max_length: int  # tokens, the end of the sentence not included


@dataclass(frozen=True)
class Manifest:
    """The parsed `bundle.json`."""

    task: str
    family: str
    source_languages: tuple[str, ...]
    target_languages: tuple[str, ...]
    tokens: SpecialTokens
    limits: Limits
    decoder: DecoderShape
    precisions: Mapping[str, Graphs]
    default_precision: str
    generation: Generation
    files: Mapping[str, StoredFile]
    provenance: Mapping[str, Any]
    metrics: Mapping[str, Any]
    parity: Mapping[str, Any]


def read_manifest(folder: Path) -> Manifest:
    """Read and check `folder/bundle.json`.

    Raises:
        BundleError: the file is missing, not JSON, of another format, or wrong in any member; lists all faults.
    """
    path = folder / FILE_NAME
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise BundleError(folder, [f"not a bundle, {FILE_NAME} is missing"]) from error
    except (OSError, ValueError) as error:
        raise BundleError(path, [f"cannot be read: {error}"]) from error
    faults: list[str] = []
    fields = Fields(raw, "", faults)
    if (version := fields.get("format", int)) != FORMAT and not faults:
        raise BundleError(path, [f"format {version} is not supported; this release reads format {FORMAT}"])
    if (task := fields.get("task", str)) != TRANSLATION and not faults:
        raise BundleError(path, [f"task {task!r} is not supported; this release serves {TRANSLATION!r}"])
    manifest = _parse(fields)
    _cross_check(manifest, faults)
    if faults:
        raise BundleError(path, faults)
    return manifest


def _parse(fields: Fields) -> Manifest:
    tokens, limits, decoder, generation = (fields.object(n) for n in ("tokens", "limits", "decoder", "generation"))
    return Manifest(
        task=fields.get("task", str),
        family=fields.get("family", str),
        source_languages=fields.strings("source_languages"),
        target_languages=fields.strings("target_languages"),
        tokens=SpecialTokens(tokens.get("pad", int), tokens.get("start", int), tokens.get("end", int)),
        limits=Limits(limits.positive("max_source_tokens"), limits.positive("max_target_tokens")),
        decoder=DecoderShape(decoder.positive("layers"), decoder.positive("heads"), decoder.positive("head_dim")),
        precisions={
            name: Graphs(graphs.get("encoder", str), graphs.get("step", str))
            for name, graphs in fields.objects("precisions").items()
        },
        default_precision=fields.get("default_precision", str),
        generation=Generation(generation.positive("max_length")),
        files={
            name: StoredFile(file.get("sha256", str), file.get("bytes", int)) for name, file in fields.objects("files").items()
        },
        provenance=fields.object("provenance").values,
        metrics=fields.object("metrics").values,
        parity=fields.object("parity").values,
    )


def _cross_check(manifest: Manifest, faults: list[str]) -> None:
    if manifest.default_precision not in manifest.precisions:
        faults.append(f"default_precision {manifest.default_precision!r} is not among precisions {sorted(manifest.precisions)}")
    needed = {file for graphs in manifest.precisions.values() for file in (graphs.encoder, graphs.step)} | {"tokenizer.json"}
    faults.extend(f"files lists no {name!r}" for name in sorted(needed - manifest.files.keys() - {""}))
    faults.extend(f"files: {name!r} is not a plain file name" for name in manifest.files if Path(name).name != name)
    if manifest.generation.max_length >= max(1, manifest.limits.max_target_tokens):
        faults.append(
            f"generation.max_length {manifest.generation.max_length} is not below limits.max_target_tokens "
            f"{manifest.limits.max_target_tokens}"
        )
    for kind, codes in (("source", manifest.source_languages), ("target", manifest.target_languages)):
        if not codes and not any(f"{kind}_languages" in fault for fault in faults):
            faults.append(f"{kind}_languages is empty")
        faults.extend(f"{kind}_languages: {code!r} is not a language code" for code in codes if not is_language(code))
