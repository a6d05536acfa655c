"""Version policy: which versions of a model are served, and their labels; the optional file `<repository>/<model>/model.json`.

versions    "latest" (the default), {"latest": 2}, "all", or a list such as [1, 3]
labels      (optional) names of versions, such as {"stable": 3, "canary": 4}; a labelled version is served whatever
            `versions` says. The one labelled "stable" serves requests that name no version
"""

import json
import math
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from triptych_serving.bundle.fields import JsonFields, read_json
from triptych_serving.errors import BundleError

FILE_NAME = "model.json"
STABLE = "stable"  # label of the version that serves requests which name none
LABEL = re.compile(r"[A-Za-z][A-Za-z0-9._-]{0,62}")  # a number would be a version
MAX_BYTES = 64 << 10  # of the file
EXPECTED = 'expected "latest", {"latest": N}, "all" or a list of versions'


@dataclass(frozen=True)
class VersionPolicy:
    """Content of `model.json`."""

    latest: int = 1  # number of newest versions to serve; 0: `versions` decides
    versions: frozenset[int] | None = None  # None: all of them
    labels: Mapping[str, int] = field(default_factory=dict)

    def candidates(self, existing: Collection[int]) -> list[int]:
        """Return the versions that may be served, newest first. Of those without a label, only the first `latest` that load."""
        if self.latest or self.versions is None:
            return sorted(existing, reverse=True)
        return sorted((version for version in existing if version in self.versions or self.labels_of(version)), reverse=True)

    def labels_of(self, version: int) -> tuple[str, ...]:
        """Return the labels of a version."""
        return tuple(sorted(label for label, labelled in self.labels.items() if labelled == version))


DEFAULT = VersionPolicy()


def read_policy(folder: Path) -> VersionPolicy:
    """Read the policy of the model in `folder`; the default if it has no `model.json`.

    Raises:
        BundleError: the file is a link, is not JSON, or is wrong in any member; lists all faults.
    """
    path = folder / FILE_NAME
    try:
        if not path.is_symlink() and not path.exists():
            return DEFAULT
        raw = read_json(_content(path))
    except json.JSONDecodeError as error:
        raise BundleError(path, [f"not valid JSON: {error}"]) from error
    except (OSError, ValueError, RecursionError) as error:
        raise BundleError(path, [f"cannot be read: {error}"]) from error
    faults: list[str] = []
    fields = JsonFields(raw, "", faults)
    faults.extend(
        f"{name!r:.40} is unknown, expected versions or labels" for name in fields.values.keys() - {"versions", "labels"}
    )
    latest, versions = _versions(fields.values.get("versions", "latest"), faults)
    labels = _labels(fields.object("labels", optional=True))
    if faults:
        raise BundleError(path, faults)
    return VersionPolicy(latest, versions, labels)


def _content(path: Path) -> str:
    if path.is_symlink() or not path.is_file():
        raise ValueError("not a plain file")
    with open(path, encoding="utf-8-sig") as file:
        content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise ValueError(f"more than {MAX_BYTES:,} characters")
    return content


def _versions(value: Any, faults: list[str]) -> tuple[int, frozenset[int] | None]:
    match value:
        case "latest":
            return 1, None
        case "all":
            return 0, None
        case {"latest": int(count), **rest} if type(count) is int and count > 0 and not rest:
            return count, None
        case [_, *_] if all(type(version) is int and version > 0 for version in value):
            return 0, frozenset(value)
    faults.append(f"versions is {value!r:.60}, {EXPECTED}, all of them at least 1")
    return 1, None


def _labels(fields: JsonFields) -> dict[str, int]:
    bad = [name for name in fields.values if not LABEL.fullmatch(name)]
    fields.faults.extend(
        f"labels: {name!r:.80} is not a label: a letter, then up to 62 letters, digits, '.', '_' or '-'" for name in bad
    )
    return {name: fields.positive(name, math.inf) for name in fields.values}
