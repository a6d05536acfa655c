"""The files of serving/deploy as data."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from triptych_cli.serve.command import command

from ...image.dockerfile import DOCKERFILE, stages

ROOT = Path(__file__).parents[3]
DEPLOY = ROOT / "serving" / "deploy"
KUBERNETES = DEPLOY / "kubernetes"
IMAGE = stages(DOCKERFILE.read_text(encoding="utf-8"))


def documents(path: Path) -> list[dict[str, Any]]:
    """All of a YAML file."""
    return [*yaml.safe_load_all(path.read_text(encoding="utf-8"))]


def document(path: Path) -> dict[str, Any]:
    """The only one of a YAML file."""
    [content] = documents(path)
    return content


def of_kind(folder: Path, kind: str) -> Iterator[dict[str, Any]]:
    """Objects of a kind in the files of a folder."""
    for path in sorted(folder.glob("*.yaml")):
        yield from (content for content in documents(path) if content.get("kind") == kind)


def serve_options(arguments: Sequence[str]) -> dict[str, Any]:
    """What `triptych serve` takes them for.

    Raises:
        click.UsageError: it does not take them.
    """
    return command.make_context("serve", [*arguments]).params
