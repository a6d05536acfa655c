"""Compiles the kernels; for the installation and for tests, so it imports nothing but the standard library."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

SOURCE = Path(__file__).with_name("decoding.cpp")
LIBRARY = SOURCE.with_suffix(".so")
COMPILERS = ("c++", "g++", "clang++")
FLAGS = ("-std=c++17", "-O3", "-fPIC", "-shared", "-fvisibility=hidden", "-fno-math-errno", "-w")
SPLIT = "-flto=auto"  # generates code on every processor: half a minute less with two; not every linker can
OLD = "-DOLD_ASSEMBLER"  # GCC 11 or later may use an assembler before binutils 2.36, which lacks these instructions
LONGEST = 600  # seconds


def compile_library(target: Path = LIBRARY, *others: str) -> str:
    """Compile the kernels to `target`, with `others` after the flags; return why that was not possible, or an empty string."""
    compiler = os.environ.get("CXX") or next(filter(None, map(shutil.which, COMPILERS)), "")
    if not compiler:
        return f"no C++ compiler is installed ({', '.join(COMPILERS)})"
    try:
        with tempfile.TemporaryDirectory(dir=target.parent) as work:
            made = Path(work) / target.name
            for flags in ((*FLAGS, SPLIT), FLAGS, (*FLAGS, OLD)):
                command = [*compiler.split(), *flags, *others, str(SOURCE), "-o", str(made)]
                result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LONGEST)
                if not result.returncode:
                    break
            else:
                return f"{compiler} failed: {result.stderr[-500:]}"
            made.replace(target)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{compiler} failed: {error}"
    return ""
