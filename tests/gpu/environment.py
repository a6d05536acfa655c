"""Packages and devices that the kit needs: python -m tests.gpu.environment [--device cuda] [--json FILE]

Compiles the native kernels, which an installation does and a checkout lacks: without them the host takes several times as long
for a step of beam search. The exit code is 1 if a package is missing or the runtime cannot compute on the device; optional
packages, and kernels that cannot be compiled, are only reported.
"""

import json
import sys
import tempfile
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import click

NEEDED = {  # module: distribution
    "click": "click",
    "google.protobuf": "protobuf",
    "google.rpc.status_pb2": "googleapis-common-protos",
    "grpc": "grpcio",
    "grpc_health.v1.health": "grpcio-health-checking",
    "grpc_reflection.v1alpha.reflection": "grpcio-reflection",
    "numpy": "numpy",
    "PIL": "pillow",
    "prometheus_client": "prometheus-client",
    "tokenizers": "tokenizers",
    "langcodes": "langcodes",
    "markdown_it": "markdown-it-py",
    "mdit_py_plugins": "mdit-py-plugins",
    "yaml": "pyyaml",
    "sentencex": "sentencex",
    "onnx": "onnx",
    "onnxscript": "onnxscript",
    "torch": "torch",
    "safetensors": "safetensors",
    "sacrebleu": "sacrebleu",
    "psutil": "psutil",
    "pytest": "pytest",
    "onnxruntime": "onnxruntime-gpu",
}
OWN = {  # the project's; the stubs check the versions of grpcio and protobuf
    "triptych.v1.translation_pb2_grpc": "triptych (stubs)",
    "triptych_serving.server": "triptych (server)",
    "triptych_client": "triptych (client)",
    "triptych_export.exporter": "triptych (export)",
    "triptych_training.checkpoints.translation": "triptych (training)",
}
OPTIONAL = {"ctranslate2": "ctranslate2", "transformers": "transformers"}
CUDA = {"cuda.bindings.runtime": "cuda-bindings"}


def packages(needed: dict[str, str]) -> dict[str, str]:
    """Return versions by distribution, or the reason why one cannot be imported."""
    found = {}
    for module, name in needed.items():
        try:
            import_module(module)
            found[name] = _version(name)
        except Exception as error:  # report everything at once
            found[name] = f"missing: {type(error).__name__}: {error}"
    return found


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "there"


def provider(device: str) -> str:
    """Multiply two matrices through the project's session; return the error, or an empty string."""
    try:
        import numpy as np

        from triptych_serving.runtime.device_selection import parse_devices
        from triptych_serving.runtime.memory import open_memory
        from triptych_serving.runtime.session import Session, SessionPlace

        from .graphs import multiplication

        memory = open_memory(parse_devices(device)[0])
        with tempfile.TemporaryDirectory() as folder:
            session = Session(multiplication(Path(folder)), place=SessionPlace(memory))
        rng = np.random.default_rng(0)
        left, right = (rng.standard_normal(shape).astype(np.float16) for shape in ((5, 64), (64, 32)))
        arrays = {"left": memory.zeros(left.shape, left.dtype), "right": memory.zeros(right.shape, right.dtype)}
        memory.upload(left, arrays["left"])
        memory.upload(right, arrays["right"])
        product = memory.zeros((5, 32), np.float16)
        session.bind(arrays, {"product": product}).run()
        host = memory.staging((5, 32), np.float16)
        memory.download(product, host)
        memory.wait()
        exact = left.astype(np.float64) @ right.astype(np.float64)
        return "" if np.allclose(host, exact, rtol=2e-3, atol=2e-2) else "a product is wrong"
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def kernels() -> str:
    """Compile the native kernels unless they are there; return whether they are used."""
    try:
        from triptych_serving.runtime.native.compiler import LIBRARY, compile_library
        from triptych_serving.runtime.native.library import native_kernels
    except ImportError as error:
        return str(error)
    reason = "" if LIBRARY.exists() else compile_library()
    return reason or ("used" if native_kernels() else "switched off, or of an earlier release")


@click.command()
@click.option("--device", default="cuda", show_default=True)
@click.option("--json", "json_file", type=click.Path(path_type=Path), default=None)
def main(device: str, json_file: Path | None) -> None:
    found = packages(NEEDED | OWN | OPTIONAL | (CUDA if device != "cpu" else {}))
    wrong = provider(device)
    content = {"python": sys.version.split()[0], "packages": found, "provider": wrong or "computes", "kernels": kernels()}
    for name, words in found.items():
        click.echo(f"{name:28} {words}")
    click.echo(f"{'the provider on ' + device:28} {content['provider']}")
    click.echo(f"{'native kernels':28} {content['kernels']}")
    if json_file:
        json_file.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    missing = [name for name, words in found.items() if words.startswith("missing") and name not in OPTIONAL.values()]
    if missing:
        click.echo(f"missing: {', '.join(missing)}")
    if wrong or missing:
        sys.exit(1)


if __name__ == "__main__":
    main()
