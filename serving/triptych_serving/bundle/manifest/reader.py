"""Reader of `bundle.json`; the task determines the required members."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path

from triptych_serving.bundle.fields import JsonFields, read_json
from triptych_serving.bundle.manifest.base import FILE_NAME, FORMAT, MAX_FILE_BYTES, OLDEST_FORMAT, Manifest
from triptych_serving.bundle.manifest.image import IMAGE_CLASSIFICATION, IMAGE_SAMPLING, parse_autoencoder, parse_image
from triptych_serving.bundle.manifest.tensors import TENSORS, parse_tensors
from triptych_serving.bundle.manifest.text import TEXT_TASKS, parse_text
from triptych_serving.bundle.manifest.text_generation import (
    IMAGE_GENERATION,
    TEXT_GENERATION,
    parse_prompted_translation,
    parse_text_generation,
)
from triptych_serving.bundle.manifest.translation import TRANSLATION, parse_translation
from triptych_serving.errors import BundleError

PARSERS: Mapping[str, Callable[[JsonFields], Manifest]] = {
    TRANSLATION: parse_translation,
    TEXT_GENERATION: parse_text_generation,
    **dict.fromkeys(TEXT_TASKS, parse_text),
    IMAGE_CLASSIFICATION: parse_image,
    IMAGE_GENERATION: parse_text_generation,
    IMAGE_SAMPLING: parse_autoencoder,
    TENSORS: parse_tensors,
}
TASKS = tuple(PARSERS)


def read_manifest(folder: Path) -> Manifest:
    """Read and check `folder/bundle.json`; the manifest is of the class that its task has.

    Raises:
        BundleError: the file is missing, not JSON, of another format, or wrong in any member; lists all faults.
    """
    path = folder / FILE_NAME
    try:
        raw = read_json(_text(path))
        json.dumps(raw, ensure_ascii=False).encode()  # half of a surrogate pair, such as \ud800, would fit into no response
    except FileNotFoundError as error:
        raise BundleError(folder, [f"not a bundle, {FILE_NAME} is missing"]) from error
    except (OSError, ValueError, RecursionError) as error:
        raise BundleError(path, [f"cannot be read: {error}"]) from error
    faults: list[str] = []
    fields = JsonFields(raw, "", faults)
    if (fault := _format_fault(fields)) and not faults:
        raise BundleError(path, [fault])
    task = fields.get("task", str)
    if faults:
        raise BundleError(path, faults)
    if task not in TASKS:
        raise BundleError(path, [f"task {task!r} is not supported; this release serves: {', '.join(TASKS)}"])
    prompted = task == TRANSLATION and "languages" in fields.values
    manifest = parse_prompted_translation(fields) if prompted else PARSERS[task](fields)
    if faults:
        raise BundleError(path, faults)
    return manifest


def _text(path: Path) -> str:
    if path.is_symlink() or (path.exists() and not path.is_file()):  # a link may lead out of the folder, a pipe may block
        raise ValueError("not a plain file")
    if (size := path.stat().st_size) > MAX_FILE_BYTES:
        raise ValueError(f"{size:,} bytes, the maximum is {MAX_FILE_BYTES:,}")
    return path.read_text(encoding="utf-8")


def _format_fault(fields: JsonFields) -> str:
    """Describe an unsupported format; empty if this release reads it."""
    version = fields.get("format", int)
    reads = f"format {FORMAT}" if OLDEST_FORMAT == FORMAT else f"formats {OLDEST_FORMAT} to {FORMAT}"
    if version > FORMAT:
        remedy = f"serve it with {_writer(fields)}, or export it with this one"
        return f"format {version} is too new, this release reads {reads}: {remedy}"
    if version < OLDEST_FORMAT:
        return f"format {version} is too old, this release reads {reads}: export it again"
    return ""


def _writer(fields: JsonFields) -> str:
    """Return the release that wrote a bundle, as far as its manifest can be read."""
    provenance = fields.values.get("provenance")
    exporter = provenance.get("exporter") if isinstance(provenance, dict) else None
    return f"{exporter:.40}, which wrote it, or a later one" if isinstance(exporter, str) else "a later one"
