"""Export of a checkpoint to a bundle; graphs come from the committed bundle instead of a trace."""

import errno
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest

from triptych_cli.training.export import command
from triptych_export import exporter
from triptych_export.bundle_files import EXTRAS, PRECISIONS, write_manifest, written_precisions
from triptych_export.errors import ParityError, SourceError
from triptych_export.exporter import ExportOptions, export
from triptych_export.families import translation as translation_family
from triptych_export.families.translation import translation_manifest
from triptych_export.loading import Opened, open_checkpoint
from triptych_export.parity import comparison
from triptych_export.parity import translation as parity
from triptych_export.parity.comparison import spread
from triptych_export.translation_source import TranslationSource
from triptych_serving.bundle.bundle import open_bundle
from triptych_serving.bundle.manifest import TranslationManifest
from triptych_serving.runtime.session import Session
from triptych_training.checkpoints.encoder import VIT
from triptych_training.checkpoints.translation import load_checkpoint, save_checkpoint

from ...fixtures.half import HALF_BUNDLE
from ...fixtures.json_files import write_json
from ...fixtures.toy import BUNDLE, HERE, PAIRS

CHECKPOINT, FEW = HERE / "checkpoint", 40


def copy_graphs(source: TranslationSource, folder: Path, say: Callable[[str], None], *more: object) -> None:
    """Copy what tracing and quantizing this very checkpoint gave."""
    shutil.copytree(BUNDLE, folder)
    (folder / "MODEL_CARD.md").unlink()
    write_manifest(folder, translation_manifest(source))


def spoil_graphs(source: TranslationSource, folder: Path, say: Callable[[str], None], *more: object) -> None:
    copy_graphs(source, folder, say)
    weights = np.fromfile(folder / "weights.fp32.bin", np.float32)
    (weights[::-1] * 1.5).tofile(folder / "weights.fp32.bin")
    write_manifest(folder, translation_manifest(source))


@pytest.fixture(autouse=True, scope="module")
def brief() -> Iterator[None]:
    """Copy graphs instead of tracing them; compare few sentences, in one batch size."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(translation_family, "write_translation", copy_graphs)
        patch.setattr(comparison, "BATCHES", (16,))
        patch.setattr(parity, "MIN_DISTINCT", FEW)
        yield


@pytest.fixture
def few_suffice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parity, "MIN_SENTENCES", FEW)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The toy checkpoint with few sentences."""
    folder = Path(shutil.copytree(HERE / "checkpoint", tmp_path_factory.mktemp("few") / "checkpoint"))
    (folder / "samples.tsv").write_text("".join(f"{source}\t{target}\n" for source, target in PAIRS[:FEW]), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def exported(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """A bundle in both precisions, and the progress lines."""
    said: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parity, "MIN_SENTENCES", FEW)
        options = ExportOptions(tmp_path_factory.mktemp("models"), precisions=("int8", "fp32"), notes="Toy sentences | CC0.\n")
        return export(checkpoint, options, said.append), said


def test_a_bundle_has_its_place_in_the_repository_and_holds_all_files(exported: tuple[Path, list[str]]) -> None:
    folder, said = exported
    assert folder.parts[-2:] == ("en-de", "1")
    assert [path.name for path in folder.parents[1].iterdir()] == ["en-de"]
    graphs = {f"{kind}.{p}.onnx" for p in ("fp32", "int8") for kind in ("encoder", "step", "search", "score", "attend")}
    files = {*graphs, "weights.fp32.bin", "weights.int8.bin", "tokenizer.json", "MODEL_CARD.md"}
    assert {path.name for path in folder.iterdir()} == files | {"bundle.json"}
    assert open_bundle(folder).manifest.files.keys() == files
    assert said == ["decoding in PyTorch", "comparing the bundle with PyTorch, token by token", "measuring BLEU"]


def test_manifest_and_card_report_parity_quality_and_origin(exported: tuple[Path, list[str]]) -> None:
    manifest = open_bundle(exported[0]).manifest
    assert manifest.default_precision == "int8"
    assert (manifest.parity["fp32"]["identical"], manifest.parity["fp32"]["sentences"]) == (True, FEW)
    assert manifest.parity["int8"]["next_token_agreement_percent"] > 99
    assert (manifest.metrics["bleu_fp32"], manifest.metrics["validation_pairs"]) == (100, FEW)
    assert len(manifest.provenance["checkpoint_sha256"]) == 64
    assert manifest.provenance["training"]["steps"] == 840
    assert manifest.provenance["training"]["recipe"]["train"] == ["pairs.tsv"]
    assert "/tmp" not in (exported[0] / "bundle.json").read_text(encoding="utf-8")
    card = (exported[0] / "MODEL_CARD.md").read_text(encoding="utf-8")
    assert card.startswith("# en-de\n\nTranslates en to de.\n\nToy sentences | CC0.\n")
    assert "| bleu fp32 | 100.0 |" in card
    assert "| fp32: identical | True |" in card


def test_settings_that_are_not_carried_over_are_reported(
    tmp_path: Path, checkpoint: Path, few_suffice: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = {"generation_not_carried_over": "min_p = 0.1", "special_tokens_read_as_text": "<e1>", "steps": "3"}

    def open_and_lose(*arguments: Any) -> Opened:
        opened = open_checkpoint(*arguments)
        monkeypatch.setattr(opened.family, "provenance", lost)
        return opened

    said: list[str] = []
    monkeypatch.setattr(exporter, "open_checkpoint", open_and_lose)
    export(checkpoint, ExportOptions(tmp_path, precisions=("fp32",)), said.append)
    assert said[:2] == ["generation not carried over: min_p = 0.1", "special tokens read as text: <e1>"]
    assert not any(line.startswith("steps") for line in said)


def test_data_paths_are_reduced_to_file_names() -> None:
    cleaned = exporter._without_folders({"recipe": {"train": ["/a/x.en::/b/x.de"], "seed": 1}, "steps": 5})
    assert cleaned == {"recipe": {"train": ["x.en::x.de"], "seed": 1}, "steps": 5}
    assert exporter._without_folders({}) == {}


def test_too_few_sentences_are_noticed_before_the_graphs_are_written(tmp_path: Path) -> None:
    said: list[str] = []
    (tmp_path / "pairs.tsv").write_text("A dog.\tEin Hund.\n")
    options = ExportOptions(tmp_path / "models", precisions=("fp32",), valid=(str(tmp_path / "pairs.tsv"),))
    with pytest.raises(SourceError, match="parity: 1 sentences given, at least 200 are needed"):
        export(CHECKPOINT, options, said.append)
    assert said == ["decoding in PyTorch"]


@pytest.mark.usefixtures("few_suffice")
def test_one_precision_ships_alone_under_the_next_free_version(tmp_path: Path, checkpoint: Path) -> None:
    (tmp_path / "toy" / "7").mkdir(parents=True)
    folder = export(checkpoint, ExportOptions(tmp_path, name="toy", precisions=("fp32",)), lambda line: None)
    assert folder == tmp_path / "toy" / "8"
    assert not [path.name for path in folder.iterdir() if "int8" in path.name]
    manifest = open_bundle(folder).manifest
    assert (list(manifest.precisions), manifest.default_precision) == (["fp32"], "fp32")


@pytest.mark.usefixtures("few_suffice")
@pytest.mark.parametrize("existing", [[], ["en-de", "en-de/1"]], ids=["new", "existing"])
def test_a_bundle_that_differs_from_pytorch_is_not_written(
    tmp_path: Path, checkpoint: Path, monkeypatch: pytest.MonkeyPatch, existing: list[str]
) -> None:
    monkeypatch.setattr(translation_family, "write_translation", spoil_graphs)
    repository = tmp_path / "models"
    for name in existing:
        (repository / name).mkdir(parents=True)
    with pytest.raises(ParityError, match="sentences differ from PyTorch"):
        export(checkpoint, ExportOptions(repository), lambda line: None)
    assert repository.exists() == bool(existing)
    assert [path.relative_to(repository).as_posix() for path in repository.rglob("*")] == existing


SHORTLIST = ("pairs.tsv",)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"precisions": ("fp32", "int2")},
            "precision: int2 is unknown; choose from fp32, int8, int8-caches, fp16, int8-weights, int4, int4-int8-caches",
        ),
        (
            {"precisions": ()},
            "precision: none is unknown; choose from fp32, int8, int8-caches, fp16, int8-weights, int4, int4-int8-caches",
        ),
        (
            {"precisions": ("int8", "int8-shortlist")},
            "precision: int8-shortlist needs sentence pairs to learn from; add --shortlist FILE",
        ),
        ({"name": "toy", "version": 3}, "version: {}/toy/3 already exists; choose another number or remove it"),
        *(
            ({"name": name}, f"name: {name!r} is not a plain folder name")
            for name in ("../toy", "a/b", "..", ".hidden", "\udcff")
        ),
    ],
)
def test_contradictory_options_are_rejected(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    (tmp_path / "toy" / "3").mkdir(parents=True)
    with pytest.raises(SourceError) as caught:
        export(CHECKPOINT, ExportOptions(tmp_path, **options), lambda line: None)
    assert str(caught.value) == message.format(tmp_path)


@pytest.mark.usefixtures("few_suffice")
def test_a_version_that_another_export_wrote_meanwhile_stays(tmp_path: Path, checkpoint: Path) -> None:
    other = tmp_path / "toy" / "1" / "bundle.json"

    def say(line: str) -> None:
        other.parent.mkdir(parents=True, exist_ok=True)
        other.write_text("{}")

    with pytest.raises(SourceError, match=r"version: another export has written .* meanwhile; export again"):
        export(checkpoint, ExportOptions(tmp_path, name="toy", precisions=("fp32",)), say)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [other]


@pytest.mark.usefixtures("few_suffice")
def test_a_full_disk_and_a_file_in_the_way_are_named(tmp_path: Path, checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fill(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")  # as a write to an open file

    monkeypatch.setattr(translation_family, "write_translation", fill)
    options = ExportOptions(tmp_path / "models", name="toy", precisions=("fp32",))
    with pytest.raises(SourceError, match=f"{tmp_path}/models: the disk is full; free space there"):
        export(checkpoint, options, print)
    assert not options.repository.exists()
    options.repository.mkdir()
    (options.repository / "toy").touch()
    with pytest.raises(SourceError, match=r"name: .*models/toy is a file; choose another name"):
        export(checkpoint, options, print)


def test_checkpoints_that_cannot_be_exported_are_rejected(tmp_path: Path) -> None:
    save_checkpoint(replace(load_checkpoint(CHECKPOINT), samples=()), tmp_path / "model")
    with pytest.raises(SourceError, match="holds no sentences for the parity check; name a file of pairs with --valid"):
        export(tmp_path / "model", ExportOptions(tmp_path / "models"), lambda line: None)
    (tmp_path / "other").mkdir()
    write_json(tmp_path / "other" / "config.json", {"format": 1, "architecture": VIT})
    with pytest.raises(SourceError, match=f"shortlist: only for translation models; .* is a {VIT}"):
        export(tmp_path / "other", ExportOptions(tmp_path / "models", shortlist=SHORTLIST), lambda line: None)


@pytest.mark.parametrize(
    ("options", "shipped", "default", "written"),
    [
        ({}, ("int8", "fp32"), "int8", ("fp32", "int8")),
        ({"shortlist": SHORTLIST}, ("int8", "fp32", "int8-shortlist"), "int8", ("fp32", "int8")),
        ({"shortlist": SHORTLIST, "precisions": ("int8-shortlist",)}, ("int8-shortlist",), "int8-shortlist", ("fp32", "int8")),
        ({"precisions": ("fp16", "int8")}, ("fp16", "int8"), "int8", ("fp32", "fp16", "int8")),
        ({"precisions": ("fp32",)}, ("fp32",), "fp32", ("fp32",)),
    ],
)
def test_shipped_and_default_precisions(
    options: dict[str, Any], shipped: tuple[str, ...], default: str, written: tuple[str, ...]
) -> None:
    made = ExportOptions(Path("models"), **options)
    assert (tuple(made.shipped), made.default, written_precisions(made.shipped)) == (shipped, default, written)


def test_the_command_offers_every_precision() -> None:
    [choice] = [option.type for option in command.params if option.name == "precisions"]
    assert isinstance(choice, click.Choice)
    assert set(choice.choices) == {*PRECISIONS, *EXTRAS, "int8-shortlist"}


def test_samples_are_spread_evenly() -> None:
    items = list(range(10))
    assert spread(items, 4) == [0, 2, 5, 7]
    assert spread(items, 20) == items


def test_a_bundle_gets_attention_graphs(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="is a bundle, which only takes --out"):
        export(HALF_BUNDLE, ExportOptions(tmp_path, notes="Notes"), print)
    bundle = open_bundle(export(HALF_BUNDLE, ExportOptions(tmp_path, name="new"), lambda line: None))
    for precision, graphs in bundle.manifest_of(TranslationManifest).precisions.items():
        session = Session(bundle.path(graphs.attend))
        assert (session.inputs, session.outputs) == (("source", "targets"), ("encoder", "decoder", "cross")), precision
