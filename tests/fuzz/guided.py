"""Fuzzing that looks for new paths through the code, with atheris (`pip install atheris`).

    python -m tests.fuzz.guided TARGET [FLAGS]      TARGET is one of targets.TARGETS; FLAGS are libFuzzer's

Runs until it finds a fault, or as long as -max_total_time=SECONDS says.
"""

import sys
import tempfile
from pathlib import Path

import atheris  # type: ignore[import-not-found]

with atheris.instrument_imports(include=["triptych_serving"]):
    from .targets import TARGETS, seeds


def main() -> None:
    """Fuzz one target from its seeds."""
    name, *flags = sys.argv[1:]
    with tempfile.TemporaryDirectory() as corpus:
        for number, seed in enumerate(seeds(name)):
            (Path(corpus) / str(number)).write_bytes(seed)
        atheris.Setup([sys.argv[0], *flags, corpus], lambda data: TARGETS[name](bytes(data)))
        atheris.Fuzz()


if __name__ == "__main__":
    main()
