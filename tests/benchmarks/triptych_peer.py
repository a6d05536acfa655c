"""Triptych itself: in process, and through gRPC."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import click
from candidate import Answer, Candidate, Decoding
from process import ServerProcess, serve_arguments

from triptych_client import Client
from triptych_client import options as client_options
from triptych_serving.bundle.bundle import open_bundle
from triptych_serving.bundle.manifest import TranslationManifest
from triptych_serving.models.translation.options import DecodingOptions, SplitSentences
from triptych_serving.models.translation.translator import Translator, TranslatorOptions
from triptych_serving.repository.repository import VersionFolder, newest_versions
from triptych_serving.runtime.device_selection import parse_devices

CALL_SECONDS = 3_600.0
CALL_TEXTS = 1 << 20  # a call is never cut into several


def find_model(repository: Path, name: str) -> VersionFolder:
    """The newest version of a translation model: of `name`, or of the first that there is."""
    for entry in newest_versions(repository):
        if name in ("", entry.name) and isinstance(open_bundle(entry.folder).manifest, TranslationManifest):
            return entry
    raise click.UsageError(f"{repository}: no translation model {name!r}")


def open_translator(
    entry: VersionFolder, precision: str, slots: int | None = None, workers: int | None = None, device: str = "cpu"
) -> Translator:
    """A model as `triptych serve` loads it; None takes its own default."""
    options = TranslatorOptions(precision)
    engine = replace(
        options.engine,
        slots=slots or options.engine.slots,
        workers=workers or options.engine.workers,
        devices=parse_devices(device),
    )
    return Translator(entry.name, entry.version, open_bundle(entry.folder), replace(options, engine=engine))


def options_for(decoding: Decoding) -> DecodingOptions:
    """What CTranslate2 does too; nothing is left to the model's defaults."""
    return DecodingOptions(
        beam_size=decoding.beam,
        patience=1.0,
        length_penalty=1.0,
        min_length=decoding.least,
        max_length=decoding.limit,
        split_sentences=SplitSentences.OFF,
    )


def client_options_for(decoding: Decoding) -> client_options.DecodingOptions:
    """The same for the client."""
    return client_options.DecodingOptions(
        beam_size=decoding.beam,
        patience=1.0,
        length_penalty=1.0,
        min_length=decoding.least,
        max_length=decoding.limit,
        split_sentences=client_options.SplitSentences.OFF,
    )


class TriptychPeer(Candidate):
    """A Translator in this process."""

    name, family = "Triptych", "Triptych"

    def __init__(
        self, entry: VersionFolder, precision: str, slots: int | None = None, workers: int | None = None, device: str = "cpu"
    ) -> None:
        self._translator = open_translator(entry, precision, slots, workers, device)

    def translate(self, texts: Sequence[str], decoding: Decoding) -> list[Answer]:
        outputs = self._translator.translate(texts, options_for(decoding))
        return [Answer(output.text, output.token_count) for output in outputs]

    def close(self) -> None:
        self._translator.close()


class ServedPeer(Candidate):
    """`triptych serve` in a process of its own, asked through the client: one request a call."""

    name, family = "Triptych gRPC", "Triptych"

    def __init__(self, repository: Path, model: str, precision: str, serve_options: Sequence[str]) -> None:
        self._server = ServerProcess(serve_arguments(str(repository), model, precision, serve_options))
        self._client = Client(self._server.address, timeout_seconds=CALL_SECONDS, texts_per_call=CALL_TEXTS)

    def translate(self, texts: Sequence[str], decoding: Decoding) -> list[Answer]:
        results = self._client.translate_many(texts, options=client_options_for(decoding))
        return [Answer(result.text, result.hypotheses[0].token_count) for result in results]

    def close(self) -> None:
        self._client.close()
        self._server.close()
