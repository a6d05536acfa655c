"""What every loaded model is, whatever its task."""

from typing import Protocol

from triptych_serving.manifest import Manifest


class Model(Protocol):
    """One version of one model, ready to serve. Thread-safe."""

    @property
    def name(self) -> str: ...

    @property
    def version(self) -> int: ...

    @property
    def precision(self) -> str: ...

    @property
    def manifest(self) -> Manifest: ...

    @property
    def labels(self) -> tuple[str, ...]:
        """What it tells apart; empty where it does not classify."""

    @property
    def capabilities(self) -> frozenset[str]:
        """What it can be asked for: see triptych_serving.capability."""

    def describe(self) -> str:
        """For the log: what it does and what it takes."""

    def close(self, drain: bool = True) -> None:
        """Stop its engine."""
