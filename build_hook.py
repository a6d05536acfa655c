"""Compiles the optional kernels when Triptych is built or installed. Without a compiler, ONNX Runtime's own are used."""

import runpy
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

NATIVE = "serving/triptych_serving/runtime/native"


class NativeBuildHook(BuildHookInterface):
    """Adds the library to the wheel, which is then for one platform; an editable install finds it beside its source."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        compiler = runpy.run_path(str(Path(self.root) / NATIVE / "compiler.py"))
        if fault := compiler["compile_library"]():
            self.app.display_warning(f"native kernels are not built: {fault}")
            return
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data |= {"pure_python": False, "tag": f"py3-none-{platform}"}
        build_data["artifacts"].append(f"{NATIVE}/{compiler['LIBRARY'].name}")
