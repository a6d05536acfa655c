"""Property tests: no time limit, for a busy machine is no fault; the same examples in every run. Less garbage collection.

TRIPTYCH_EXAMPLES sets the number of examples of a property test.
"""

import gc
import os

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # tests import the runtime without triptych_serving, too
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")  # else lines about a server of an earlier test come between those of a command

import pytest
from hypothesis import settings

EXAMPLES = int(os.environ.get("TRIPTYCH_EXAMPLES", "30"))
settings.register_profile("triptych", deadline=None, derandomize=True, max_examples=EXAMPLES)
settings.load_profile("triptych")
gc.set_threshold(10_000, 20, 20)  # a tenth of an export was the collection of what imported libraries hold
gc.disable()  # until all modules are imported

_unfreeze, _unfrozen = gc.unfreeze, [True]


def _note() -> None:
    """Unfreeze, until the next test."""
    _unfrozen.append(True)
    _unfreeze()


gc.unfreeze = _note


def pytest_collection_finish() -> None:
    gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Freeze what was imported: benchmarks, among others, start with a collection, which took half a second."""
    if _unfrozen:
        _unfrozen.clear()
        gc.freeze()
