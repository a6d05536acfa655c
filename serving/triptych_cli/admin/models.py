"""`triptych models`: what a repository or a server has."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from triptych_cli.common import options
from triptych_cli.common.connection import connect
from triptych_cli.common.errors import needs, one_line
from triptych_cli.common.languages import pair_text
from triptych_embedded.repository import embedded_repository

if TYPE_CHECKING:
    from triptych_serving.bundle.manifest import Manifest


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    name: str
    version: str
    called: str  # the version's labels, such as "stable"
    default: bool  # requests that name no version get it, or would
    task: str
    languages: str
    labels: int  # what it tells apart; 0 where it does not classify
    limits: str
    precisions: str  # the one that runs, or would, comes first
    devices: str  # of a server: where it runs
    state: str


@click.command(name="models")
@options.models
@options.server
@click.option("--json", "as_json", is_flag=True, help="For scripts.")
def command(models: Path | None, server: str, as_json: bool) -> None:
    """List the models of a repository, by default the embedded one, or of a server."""
    rows = _of_server(server) if options.asks_server() else _of_repository(models or embedded_repository())
    if as_json:
        click.echo(json.dumps([asdict(row) for row in rows], ensure_ascii=False))
        return
    cells = [tuple(_cell(value) for value in asdict(row).values()) for row in rows]
    header = tuple(Row.__dataclass_fields__)
    widths = [max(len(line[column]) for line in [header, *cells]) for column in range(len(header))]
    for line in [header, *cells]:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def _cell(value: object) -> str:
    return "yes" if value is True else str(value or "")


def _of_repository(root: Path) -> list[Row]:
    needs("triptych_serving.repository.repository", "serve")
    from triptych_serving.bundle.bundle import open_bundle
    from triptych_serving.errors import BundleError
    from triptych_serving.repository.repository import ModelFolder, VersionFolder, chosen_models

    def row(model: ModelFolder, entry: VersionFolder) -> Row:
        called, default = ", ".join(model.policy.labels_of(entry.version)), entry == model.default
        head = (entry.name, str(entry.version), called, default)
        if model.fault:
            return Row(*head, "", "", 0, "", "", "", f"damaged: {model.fault}")
        try:
            manifest = open_bundle(entry.folder).manifest
        except BundleError as error:
            return Row(*head, "", "", 0, "", "", "", f"damaged: {error}")
        precisions = ", ".join(sorted(manifest.precisions, key=lambda name: name != manifest.default_precision))
        return Row(*head, manifest.task, *_kind(manifest), precisions, "", "on disk")

    with one_line(BundleError):
        models = sorted(chosen_models(root).items())
        return [row(model, entry) for _, model in models for entry in model.versions]


def _kind(manifest: "Manifest") -> tuple[str, int, str]:
    """Languages, labels, limits."""
    from triptych_serving.bundle.manifest import ImageManifest, TextManifest, TranslationManifest

    match manifest:
        case TranslationManifest():
            pair = pair_text(manifest.source_languages, manifest.target_languages)
            return pair, 0, _tokens(manifest.limits.max_source_tokens)
        case TextManifest():
            return "", len(manifest.labels), _tokens(manifest.limits.max_tokens)
        case ImageManifest():
            return "", manifest.label_count, f"{manifest.image.width} x {manifest.image.height} pixels"
    return "", 0, ""


def _tokens(count: int) -> str:
    return f"{count:,} tokens" if count else ""


def _of_server(server: str) -> list[Row]:
    from triptych_client import Model, TriptychClientError

    def row(model: Model) -> Row:
        pair = pair_text(model.source_languages, model.target_languages)
        rest = [name for name in model.available_precisions if name != model.precision]
        state = model.state.value + (f": {model.state_message}" if model.state_message else "")
        limits, precisions = _tokens(model.max_source_tokens), ", ".join(filter(None, [model.precision, *rest]))
        head = (model.name, model.version, ", ".join(model.version_labels), model.default_version)
        devices = ", ".join(model.devices)
        return Row(*head, model.task, pair, len(model.labels), limits, precisions, devices, state)

    with one_line(TriptychClientError), connect(server) as client:
        return [row(model) for model in client.models()]
