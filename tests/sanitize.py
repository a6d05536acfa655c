"""Runs the tests of the kernels with a library compiled with GCC's sanitizers of addresses and undefined behaviour.

`make sanitize` does so at every level of instructions. As a plugin of pytest, this module lets tests use that library, and
the runtime allocate each tensor by itself: else what is read beyond one is another one, and not found.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import click

from triptych_serving.runtime.native import compiler

SANITIZED = "TRIPTYCH_SANITIZED"  # environment: the library
FLAGS = ("-O1", "-g", "-fno-omit-frame-pointer", "-fsanitize=address,undefined,float-cast-overflow")
PRELOADED = ("libasan.so", "libstdc++.so")  # the process was not linked with them
OPTIONS = {"ASAN_OPTIONS": "detect_leaks=0", "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1", "PYTHONMALLOC": "malloc"}
TESTS = ("tests/unit/serving/runtime/test_native_kernels.py", "tests/unit/serving/decoding", "tests/unit/export/quantization")

if SANITIZED in os.environ:
    compiler.LIBRARY = Path(os.environ[SANITIZED])  # before others import it

from triptych_serving.runtime import session  # noqa: E402
from triptych_serving.runtime.native.library import LEVEL, LEVELS  # noqa: E402

_make_options = session._session_options


def _without_arena(threads: int, entries: Mapping[str, str]) -> session.ort.SessionOptions:
    options = _make_options(threads, entries)
    options.enable_cpu_mem_arena = options.enable_mem_pattern = False
    return options


session._session_options = _without_arena


def main() -> int:
    """Run the tests at each level; return the number of levels where one failed."""
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / compiler.LIBRARY.name
        os.environ["CXX"] = "g++"
        if fault := compiler.compile_library(library, *FLAGS):
            sys.exit(fault)
        preloaded = [subprocess.check_output(["g++", f"-print-file-name={name}"], text=True).strip() for name in PRELOADED]
        environment = {**os.environ, **OPTIONS, "LD_PRELOAD": " ".join(preloaded), SANITIZED: str(library)}
        command = [sys.executable, "-m", "pytest", "-q", "--capture=sys", "-p", "tests.sanitize", *TESTS]
        faulty = []
        for level in LEVELS:
            click.echo(f"{level}, or the next lower level that this processor has:")
            if subprocess.run(command, env={**environment, LEVEL: level}, check=False).returncode:
                faulty.append(level)
        click.echo(f"faulty: {', '.join(faulty) or 'none'}")
        return len(faulty)


if __name__ == "__main__":
    sys.exit(main())
