"""Search path for CUDA libraries installed by pip, which a runtime in another folder does not find."""

import os
from collections.abc import Sequence
from pathlib import Path

PLACES = ("nvidia/*/lib", "nvidia/*/lib64")


def library_path(roots: Sequence[str]) -> str:
    """Return LD_LIBRARY_PATH with the vendor's packages in these folders first."""
    found = [str(folder) for root in roots for place in PLACES for folder in sorted(Path(root or ".").glob(place))]
    return ":".join([*dict.fromkeys(found), *filter(None, [os.environ.get("LD_LIBRARY_PATH", "")])])
