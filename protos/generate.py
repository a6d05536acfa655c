"""Compile triptych/*/*.proto into the Python stubs beside them.

python protos/generate.py            write the stubs
python protos/generate.py --check    write nothing; exit 1 and name the stubs that are out of date

Needs grpcio-tools and mypy-protobuf, both in the `dev` extra. Their versions are pinned there because the stubs contain them.
"""

import argparse
import os
import re
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent
PACKAGES = (Path("triptych/v1"), Path("triptych/inference"))
PRIVATE = PACKAGES[1]  # registered in a pool of its own (pool.py), since other packages ship stubs of the same names
SERVICE = re.compile(r"^service\s", re.MULTILINE)
POOLS = {
    "from google.protobuf import descriptor_pool as _descriptor_pool\n": "from triptych.inference.pool import POOL as _POOL\n",
    "_descriptor_pool.Default()": "_POOL",
}


def protoc(protos: list[Path], arguments: list[str]) -> None:
    """Run the compiler on files below ROOT. Raises CalledProcessError; the compiler's report goes to stderr."""
    # The plugins are scripts of this environment, which need not be activated; google/rpc/status.proto is installed in it.
    path = os.pathsep.join([sysconfig.get_path("scripts"), os.environ.get("PATH", "")])
    names = [proto.relative_to(ROOT).as_posix() for proto in protos]
    command = [sys.executable, "-m", "grpc_tools.protoc", "-I.", f"-I{sysconfig.get_path('purelib')}", *arguments, *names]
    subprocess.run(command, cwd=ROOT, env=os.environ | {"PATH": path}, check=True)


def compile_into(folder: Path) -> None:
    """Write the stubs of every proto below `folder`."""
    protos = [proto for package in PACKAGES for proto in sorted((ROOT / package).glob("*.proto"))]
    protoc(protos, [f"--python_out={folder}", f"--mypy_out=quiet:{folder}"])
    # A file without a service would get an empty module.
    services = [proto for proto in protos if SERVICE.search(proto.read_text("utf-8"))]
    protoc(services, [f"--grpc_python_out={folder}", f"--mypy_grpc_out=quiet:{folder}"])
    for stub in (folder / PRIVATE).glob("*_pb2.py"):
        code = stub.read_text("utf-8")
        for default, private in POOLS.items():
            assert code.count(default) == 1, f"{stub.name} does not register its messages in the expected way"
            code = code.replace(default, private)
        stub.write_text(code, "utf-8")


def read_stubs(root: Path) -> dict[str, bytes]:
    """Read every stub below `root`, by its path."""
    paths = (path for package in PACKAGES for path in sorted((root / package).glob("*_pb2*.py*")))
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in paths}


def main() -> int:
    parser = argparse.ArgumentParser(description="Compile triptych/*/*.proto into the Python stubs beside them.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 when the committed stubs differ")
    check = parser.parse_args().check

    with tempfile.TemporaryDirectory() as folder:
        compile_into(Path(folder))
        fresh = read_stubs(Path(folder))

    committed = read_stubs(ROOT)
    if not check:
        for path in committed:
            (ROOT / path).unlink()
        for path, content in fresh.items():
            (ROOT / path).write_bytes(content)
        return 0
    differing = sorted(Path(path).name for path in fresh | committed if fresh.get(path) != committed.get(path))
    if differing:
        sys.stderr.write(f"out of date: {', '.join(differing)}; run: python protos/generate.py\n")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
