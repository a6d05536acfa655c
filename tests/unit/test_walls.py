"""Who may import what."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SERVING = ROOT / "serving"
KNOW_GRPC = (
    "triptych_serving/server.py",
    "triptych_serving/wiring.py",
    "triptych_serving/rpc/",
    "triptych_serving/services/",
    "triptych_serving/security/",
    "triptych_client/",
    "triptych_bench/",
)
LINT_IMPORTS = "from importlinter.cli import lint_imports_command as main; main()"


def test_the_contracts_are_kept() -> None:
    result = subprocess.run([sys.executable, "-c", LINT_IMPORTS], cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "0 broken" in result.stdout


def imported(path: Path) -> Iterator[str]:
    """Top-level names of all packages that a module imports, wherever in it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]


def importers(package: str) -> set[str]:
    """Modules below serving/ that import `package`."""
    modules = SERVING.glob("triptych_*/**/*.py")
    return {str(module.relative_to(SERVING)) for module in modules if package in set(imported(module))}


def test_onnxruntime_is_known_to_one_module() -> None:
    assert importers("onnxruntime") == {"triptych_serving/runtime/session.py"}


def test_cudas_bindings_are_known_to_one_module() -> None:
    assert importers("cuda") == {"triptych_serving/runtime/memory/cudart.py"}


@pytest.mark.parametrize("package", ["grpc", "grpc_health", "grpc_reflection"])
def test_grpc_is_known_to_rpc_services_and_clients(package: str) -> None:
    found = importers(package)
    assert found
    assert {module for module in found if not module.startswith((*KNOW_GRPC, "triptych_ray/"))} == set()


def test_ray_is_known_to_its_package() -> None:
    found = importers("ray")
    assert found
    assert {module for module in found if not module.startswith("triptych_ray/")} == set()


def test_the_engine_needs_no_wire_format() -> None:
    assert {module for module in importers("triptych") if not module.startswith(KNOW_GRPC)} == set()
