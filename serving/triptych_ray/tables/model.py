"""Find the model that the engines of a job will load, without loading it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from triptych_embedded.engine import identity_of
from triptych_embedded.models import backend_errors
from triptych_embedded.request import BackendError, TranslationRequest
from triptych_embedded.sentences import TranslatorIdentity
from triptych_serving.bundle.bundle import Bundle
from triptych_serving.bundle.manifest import TranslationManifest, read_manifest
from triptych_serving.errors import BundleError
from triptych_serving.repository.placement import CPU_ALONE, Hardware, place
from triptych_serving.repository.repository import VersionFolder, chosen_models
from triptych_serving.runtime.device import CPU, Device
from triptych_serving.runtime.device_selection import AUTO
from triptych_serving.text.languages import has_pair, takes_any

FoundModel = tuple[VersionFolder, TranslationManifest]
GPU = Hardware((Device("cuda"),), needed=True)


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
    there = list(_models(repository, request.model))
    able = (
        there
        if len(there) == 1
        else [model for model in there if has_pair(model[1], request.source_language, request.target_language)]
    )
    if request.source_language or request.target_language:  # prefer models that name the languages
        able = [model for model in able if not takes_any(model[1])] or able
    if not able:
        raise BackendError(f"{repository}: no model translates {request.model or 'these languages'}")
    if len(able) > 1:
        names = ", ".join(sorted(entry.name for entry, _ in able))
        raise BackendError(f"{repository}: several models match, set `model` to one of: {names}")
    return able[0]


def _models(repository: Path, name: str) -> Iterator[FoundModel]:
    """Yield the translation models, each in the version that a server would serve."""
    for folder in chosen_models(repository, name).values():
        try:
            manifest = read_manifest(folder.default.folder)
        except BundleError:
            if name:
                raise
            continue  # as a server does: the other models may fit
        if isinstance(manifest, TranslationManifest):
            yield folder.default, manifest
