"""Triptych in process and through gRPC."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from candidates.candidate import Answer, Candidate, Decoding
from triptych.decoding import DecodingOptions, SplitSentences
from triptych_bench.server.process import TriptychServer
from triptych_client import Client
from triptych_serving.bundle.bundle import open_bundle
from triptych_serving.bundle.manifest import TranslationManifest
from triptych_serving.models.decode_model import DecodeModelOptions
from triptych_serving.models.translation.translator import Translator
from triptych_serving.repository.repository import VersionFolder, newest_versions
from triptych_serving.runtime.device_selection import parse_devices

CALL_SECONDS = 3_600.0
CALL_TEXTS = 1 << 20  # never split a call into several requests


def find_model(repository: Path, name: str) -> VersionFolder:
    """Return the newest version of a translation model; without a name, of the first one."""
    for entry in newest_versions(repository):
        if name in ("", entry.name) and isinstance(open_bundle(entry.folder).manifest, TranslationManifest):
            return entry
    raise click.UsageError(f"{repository}: no translation model {name!r}")


def open_translator(
    entry: VersionFolder, precision: str, slots: int | None = None, workers: int | None = None, device: str = "cpu"
) -> Translator:
    """Load a model as `triptych serve` does; None is the server's default."""
    options = DecodeModelOptions(precision)
    engine = replace(
        options.engine,
        slots=slots or options.engine.slots,
        workers=workers or options.engine.workers,
        devices=parse_devices(device),
    )
    return Translator(entry.name, entry.version, open_bundle(entry.folder), replace(options, engine=engine))


def options_for(decoding: Decoding) -> DecodingOptions:
    """Return the options that equal CTranslate2's; none is left to the model's defaults."""
    return DecodingOptions(**_members(decoding), split_sentences=SplitSentences.OFF)


def _members(decoding: Decoding) -> dict[str, Any]:
    lengths = {"min_length": decoding.least, "max_length": decoding.limit}
    return {"beam_size": decoding.beam, "patience": 1.0, "length_penalty": 1.0, **lengths}


class TriptychModel(Candidate):
    """Triptych's engine in this process."""

    name, family = "Triptych", "Triptych"

    def __init__(
        self, entry: VersionFolder, precision: str, slots: int | None = None, workers: int | None = None, device: str = "cpu"
    ) -> None:
        self._translator = open_translator(entry, precision, slots, workers, device)

    def translate(self, texts: Sequence[str], decoding: Decoding) -> list[Answer]:
        outputs = self._translator.translate(texts, options_for(decoding))
        return [Answer(output.text, output.hypotheses[0].token_count) for output in outputs]

    def close(self) -> None:
        self._translator.close()


class GrpcCandidate(Candidate):
    """`triptych serve` in another process, with these flags, and a client for it."""

    name, family = "Triptych gRPC", "Triptych"

    def __init__(self, flags: Sequence[str]) -> None:
        self._server = TriptychServer(flags).__enter__()
        self._client = Client(self._server.address, timeout_seconds=CALL_SECONDS, texts_per_call=CALL_TEXTS)

    def close(self) -> None:
        self._client.close()
        self._server.__exit__(None, None, None)


class TriptychThroughGrpc(GrpcCandidate):
    """Translation through the Python client: one request per call."""

    def translate(self, texts: Sequence[str], decoding: Decoding) -> list[Answer]:
        results = self._client.translate_many(texts, **_members(decoding), split_sentences=SplitSentences.OFF)
        return [Answer(result.text, result.hypotheses[0].token_count) for result in results]
