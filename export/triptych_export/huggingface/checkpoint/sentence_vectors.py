"""Pooling of a sentence-transformers folder, from modules.json and the pooling module's config.json.

Source: https://sbert.net/docs/sentence_transformer/usage/custom_models.html
"""

import json
from dataclasses import dataclass
from typing import Any

from triptych_export.errors import SourceError
from triptych_export.huggingface.folder import Folder

MODULES = "modules.json"
KINDS = ("Transformer", "Pooling", "Normalize")
POOLINGS = {"pooling_mode_mean_tokens": "mean", "pooling_mode_cls_token": "cls", "mean": "mean", "cls": "cls"}


@dataclass(frozen=True)
class Vectors:
    """Pooling and normalisation of a text's vector."""

    pooling: str = "mean"
    normalize: bool = False


def read_vectors(folder: Folder) -> Vectors | None:
    """Read the pooling settings; None if it is not a sentence-transformers folder.

    Raises:
        SourceError: the vectors are made in a way that bundles do not know.
    """
    if not folder.has(MODULES):
        return None
    path = folder.path / MODULES
    try:
        modules = [(str(each["type"]).rpartition(".")[2], str(each["path"])) for each in json.loads(path.read_text("utf-8"))]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SourceError(f"{path}: not a list of modules ({type(error).__name__}: {error})") from error
    if foreign := [kind for kind, _ in modules if kind not in KINDS]:
        raise SourceError(f"{path}: {', '.join(foreign)} is not supported; supported: {', '.join(KINDS)}")
    poolings = [place for kind, place in modules if kind == "Pooling"]
    if not poolings:
        return None
    file = f"{poolings[0]}/config.json"
    return Vectors(_pooling(folder.path / file, folder.read_json(file) or {}), "Normalize" in dict(modules))


def _pooling(path: object, members: dict[str, Any]) -> str:
    """Read the pooling mode: older files have a flag for each mode, newer ones a name."""
    named = [name for name, value in members.items() if name.startswith("pooling_mode_") and value is True]
    if isinstance(members.get("pooling_mode"), str):
        named = [members["pooling_mode"]]
    if len(named) != 1 or named[0] not in POOLINGS:
        raise SourceError(f"{path}: pooling by {' and '.join(named) or 'nothing'} is not supported; supported: mean, cls")
    return POOLINGS[named[0]]
