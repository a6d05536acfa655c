"""What the answers of a translator depend on."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Identity:
    """Answers of equal ones may stand for each other.

    Args:
        model: its name.
        version: of it.
        precision: such as "int8"; empty where a server does not say.
        bundle: SHA-256 of the bundle's manifest, which has those of all its files; empty of a model behind a server.
        source_language: as the model calls it, or as the user did.
        target_language: likewise.
        decoding: the options that the user gave.
    """

    model: str
    version: str
    precision: str = ""
    bundle: str = ""
    source_language: str = ""
    target_language: str = ""
    decoding: Mapping[str, object] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """One for all equal ones."""
        return canonical(vars(self))


def canonical(values: object) -> str:
    """JSON that is the same for equal values."""
    return json.dumps(values, sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def digest(content: bytes | str) -> str:
    """SHA-256, hexadecimal."""
    return hashlib.sha256(content.encode() if isinstance(content, str) else content).hexdigest()
