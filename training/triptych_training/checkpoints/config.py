"""config.json, which says what the rest of a checkpoint folder is."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from triptych_training.errors import CheckpointError, CorpusError

FORMAT = 1
CONFIG = "config.json"

Result = TypeVar("Result")


def write_config(path: Path, architecture: str, members: Mapping[str, Any]) -> None:
    """Write `path`: format and architecture first."""
    config = {"format": FORMAT, "architecture": architecture, **members}
    path.write_text(json.dumps(config, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def read_config(path: Path, architecture: str, kinds: Mapping[str, type]) -> dict[str, Any]:
    """Read `path`, whose members `kinds` must be there.

    Raises:
        CheckpointError: the file cannot be read, is of another architecture or format, or members are missing or mistyped.
    """
    config = _read_object(path)
    if config.get("architecture") != architecture or config.get("format") != FORMAT:
        raise CheckpointError(
            f"{path}: architecture {config.get('architecture')!r} format {config.get('format')!r}; "
            f"supported: {architecture!r} format {FORMAT}"
        )
    wrong = [name for name, kind in kinds.items() if not isinstance(config.get(name), kind)]
    if wrong:
        raise CheckpointError(f"{path}: missing or of the wrong type: {', '.join(wrong)}")
    return config


def read_architecture(folder: Path) -> str:
    """What a checkpoint folder says it holds; empty where it says nothing.

    Raises:
        CheckpointError: there is no config.json, or it cannot be read.
    """
    need_files(folder, (CONFIG,))
    return str(_read_object(folder / CONFIG).get("architecture", ""))


def need_files(folder: Path, names: Sequence[str]) -> None:
    """Refuse a folder that lacks one of `names`.

    Raises:
        CheckpointError: lists the missing ones.
    """
    if missing := [name for name in names if not (folder / name).is_file()]:
        raise CheckpointError(f"{folder}: not a checkpoint folder, missing {', '.join(missing)}")


def attempt(faults: list[str], read: Callable[[], Result]) -> Result | None:
    """What `read` returns; a fault is noted and gives None."""
    try:
        return read()
    except (CheckpointError, CorpusError) as error:
        faults.append(str(error))
        return None


def make_member(path: Path, member: str, make: Callable[[], Result]) -> Result:
    """What `make` builds from a member of `path`.

    Raises:
        CheckpointError: the member's values do not do.
    """
    try:
        return make()
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{path}: {member}: {error}") from error


def _read_object(path: Path) -> dict[str, Any]:
    try:
        config: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path}: not JSON ({error})") from error
    if not isinstance(config, dict):
        raise CheckpointError(f"{path}: not a JSON object")
    return config
