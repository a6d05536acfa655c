"""The command that installs an extra of the distribution."""

from pathlib import Path

# Without it, pip takes the build for CUDA, which is several gigabytes larger.
PYTORCH_FOR_CPUS = " --extra-index-url https://download.pytorch.org/whl/cpu"


def install_command(extra: str) -> str:
    """Return the command that installs an extra: from the clone that this file is part of, or for an installed wheel."""
    clone = Path(__file__).parents[2]
    command = (
        f'pip install -e "{clone}[{extra}]"' if (clone / "pyproject.toml").exists() else f'pip install "triptych[{extra}]"'
    )
    return command + (PYTORCH_FOR_CPUS if extra in ("train", "export", "peft") else "")
