"""Reading `bundle.json`: the task decides which members there must be."""

import json
from pathlib import Path

from triptych_serving.errors import BundleError
from triptych_serving.fields import Fields
from triptych_serving.manifest.base import FILE_NAME, FORMAT, Manifest
from triptych_serving.manifest.image import IMAGE_CLASSIFICATION, parse_image
from triptych_serving.manifest.text import TEXT_TASKS, parse_text
from triptych_serving.manifest.translation import TRANSLATION, parse_translation

TASKS = (TRANSLATION, *TEXT_TASKS, IMAGE_CLASSIFICATION)


def read_manifest(folder: Path) -> Manifest:
    """Read and check `folder/bundle.json`: a TranslationManifest, TextManifest or ImageManifest.

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
    task = fields.get("task", str)
    if task not in TASKS and not faults:
        raise BundleError(path, [f"task {task!r} is not supported; this release serves: {', '.join(TASKS)}"])
    manifest = _parse(task, fields, faults)
    if faults:
        raise BundleError(path, faults)
    return manifest


def _parse(task: str, fields: Fields, faults: list[str]) -> Manifest:
    if task in TEXT_TASKS:
        return parse_text(fields, faults)
    if task == IMAGE_CLASSIFICATION:
        return parse_image(fields, faults)
    return parse_translation(fields, faults)
