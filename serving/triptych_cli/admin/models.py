"""`triptych models`: list the models of a repository or a server."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from triptych_cli.common import options
from triptych_cli.common.connection import connect
from triptych_cli.common.errors import needs, one_line
from triptych_cli.common.lines import check_stdout, print_table
from triptych_embedded.request import embedded_repository

if TYPE_CHECKING:
    from triptych_serving.bundle.manifest import Manifest

SHOWN_LANGUAGES = 4  # of a longer list


@dataclass(frozen=True)
class ModelRow:
    """A version of a model."""

    name: str
    version: str
    called: str  # labels of the version, such as "stable"
    default: bool  # requests that name no version use it
    task: str
    languages: str
    labels: int  # number of classes; 0 if it does not classify
    limits: str
    precisions: str  # the one in use, or the default, comes first
    devices: str  # where it runs, on a server
    state: str

    def cells(self, versions: Mapping[str, int]) -> tuple[str, ...]:
        """Return the line of the table; `versions` are the numbers of versions by name."""
        default = "default" if self.default and versions[self.name] > 1 else ""
        version = " ".join(filter(None, [self.version, ", ".join(filter(None, [self.called, default]))]))
        details = filter(None, [self.languages, f"{self.labels:,} labels" if self.labels else "", self.limits])
        state, colon, message = self.state.partition(": ")
        if self.devices:
            state += f" on {self.devices}"
        return self.name, version, self.task, ", ".join(details), self.precisions, state + colon + message


@click.command(name="models")
@options.models
@options.server
@options.as_json
def command(models: Path | None, server: str, as_json: bool) -> None:
    """List the models of a repository, by default the embedded one, or of a server."""
    check_stdout()
    rows = _of_server(server) if options.asks_server() else _of_repository(models or embedded_repository())
    if as_json:
        click.echo(json.dumps([asdict(row) for row in rows], ensure_ascii=False))
        return
    versions = Counter(row.name for row in rows)
    print_table([("name", "version", "task", "details", "precisions", "state"), *(row.cells(versions) for row in rows)])


def _of_repository(root: Path) -> list[ModelRow]:
    needs("triptych_serving.repository.repository", "serve")
    from triptych_serving.bundle.bundle import open_bundle
    from triptych_serving.errors import BundleError
    from triptych_serving.repository.repository import ModelFolder, VersionFolder, chosen_models

    def row(model: ModelFolder, entry: VersionFolder) -> ModelRow:
        called, default = ", ".join(model.policy.labels_of(entry.version)), entry == model.default
        head = (entry.name, str(entry.version), called, default)
        if model.fault:
            return ModelRow(*head, "", "", 0, "", "", "", f"damaged: {model.fault}")
        try:
            manifest = open_bundle(entry.folder).manifest
        except BundleError as error:
            return ModelRow(*head, "", "", 0, "", "", "", f"damaged: {error}")
        precisions = ", ".join(sorted(manifest.precisions, key=lambda name: name != manifest.default_precision))
        return ModelRow(*head, manifest.task, *_languages_labels_limits(manifest), precisions, "", "on disk")

    with one_line(BundleError):
        models = sorted(chosen_models(root).items())
        return [row(model, entry) for _, model in models for entry in model.versions]


def _languages_labels_limits(manifest: "Manifest") -> tuple[str, int, str]:
    from triptych_serving.bundle.manifest import ImageManifest, PromptedTranslationManifest, TextManifest, TranslationManifest

    match manifest:
        case TranslationManifest():
            pair = _pair_text(manifest.source_languages, manifest.target_languages)
            return pair, 0, _tokens(manifest.limits.max_source_tokens)
        case PromptedTranslationManifest():
            return _pair_text(manifest.source_languages, manifest.target_languages), 0, ""
        case TextManifest():
            return "", len(manifest.labels), _tokens(manifest.limits.max_tokens)
        case ImageManifest():
            return "", manifest.label_count, f"{manifest.image.width} x {manifest.image.height} pixels"
    return "", 0, ""


def _of_server(server: str) -> list[ModelRow]:
    from triptych_client import Model

    def row(model: Model) -> ModelRow:
        others = [name for name in model.available_precisions if name != model.precision]
        return ModelRow(
            model.name,
            model.version,
            ", ".join(model.version_labels),
            model.default_version,
            model.task,
            _pair_text(model.source_languages, model.target_languages),
            len(model.labels),
            _tokens(model.max_source_tokens),
            ", ".join(filter(None, [model.precision, *others])),
            ", ".join(model.devices),
            model.state.value + (f": {model.state_message}" if model.state_message else ""),
        )

    with connect(server) as client:
        return [row(model) for model in client.models()]


def _tokens(count: int) -> str:
    return f"{count:,} tokens" if count else ""


def _pair_text(sources: Sequence[str], targets: Sequence[str]) -> str:
    """Return the languages of a model, such as "en to de"; of many languages only the first ones."""
    if not sources and not targets:
        return ""
    if len(sources) > SHOWN_LANGUAGES and tuple(sources) == tuple(targets):
        return f"among {_side_text(sources)}"
    return f"{_side_text(sources)} to {_side_text(targets)}"


def _side_text(codes: Sequence[str]) -> str:
    if len(codes) <= SHOWN_LANGUAGES:
        return "/".join(codes)
    return f"{len(codes)} languages: {', '.join(codes[:SHOWN_LANGUAGES])}, ..."
