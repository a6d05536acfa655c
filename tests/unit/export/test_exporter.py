"""The way from checkpoint to bundle; graphs come from the committed bundle instead of a trace."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from triptych_export import exporter
from triptych_export.bundle_files import write_manifest
from triptych_export.errors import ParityError, SourceError
from triptych_export.exporter import ExportOptions, export
from triptych_export.families import translation as translation_family
from triptych_export.families.translation import translation_manifest
from triptych_export.parity import translation as parity
from triptych_export.parity.comparison import spread
from triptych_export.translation_source import TranslationSource
from triptych_serving.bundle.bundle import open_bundle
from triptych_training.checkpoints.encoder import VIT
from triptych_training.checkpoints.translation import load_checkpoint, save_checkpoint

from ...fixtures.toy import BUNDLE, HERE, PAIRS

CHECKPOINT = HERE / "checkpoint"


def copy_graphs(source: TranslationSource, folder: Path, say: Callable[[str], None], *more: object) -> None:
    """What tracing and quantizing this very checkpoint gave."""
    shutil.copytree(BUNDLE, folder)
    (folder / "MODEL_CARD.md").unlink()
    write_manifest(folder, translation_manifest(source))


def spoil_graphs(source: TranslationSource, folder: Path, say: Callable[[str], None], *more: object) -> None:
    copy_graphs(source, folder, say)
    weights = np.fromfile(folder / "weights.fp32.bin", np.float32)
    (weights[::-1] * 1.5).tofile(folder / "weights.fp32.bin")
    write_manifest(folder, translation_manifest(source))


@pytest.fixture(autouse=True)
def no_tracing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(translation_family, "write_translation", copy_graphs)


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """A bundle in both precisions, and what was said meanwhile."""
    said: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(translation_family, "write_translation", copy_graphs)
        options = ExportOptions(tmp_path_factory.mktemp("models"), precisions=("int8", "fp32"), notes="Toy sentences | CC0.\n")
        return export(CHECKPOINT, options, said.append), said


@pytest.fixture
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    """One comparison instead of three."""
    monkeypatch.setattr(parity, "BATCHES", (16,))


def refuse(options: ExportOptions, checkpoint: Path = CHECKPOINT) -> str:
    with pytest.raises(SourceError) as caught:
        export(checkpoint, options, lambda line: None)
    return str(caught.value)


def test_a_bundle_lies_in_the_repository_under_name_and_version(exported: tuple[Path, list[str]]) -> None:
    folder, _ = exported
    assert folder.parts[-2:] == ("en-de", "1")
    assert [path.name for path in folder.parents[1].iterdir()] == ["en-de"]


def test_a_bundle_holds_graphs_weights_tokenizer_card_and_their_sums(exported: tuple[Path, list[str]]) -> None:
    folder, _ = exported
    graphs = {
        f"{kind}.{p}.{end}"
        for p in ("fp32", "int8")
        for kind, end in (*((kind, "onnx") for kind in ("encoder", "step", "search", "score")), ("weights", "bin"))
    }
    assert {path.name for path in folder.iterdir()} == graphs | {"tokenizer.json", "MODEL_CARD.md", "bundle.json"}
    assert open_bundle(folder).manifest.files.keys() == graphs | {"tokenizer.json", "MODEL_CARD.md"}


def test_the_manifest_tells_parity_quality_and_origin(exported: tuple[Path, list[str]]) -> None:
    manifest = open_bundle(exported[0]).manifest
    assert manifest.default_precision == "int8"
    assert manifest.parity["fp32"]["identical"] is True
    assert manifest.parity["fp32"]["sentences"] == 300
    assert manifest.parity["int8"].keys() == {"identical_sentences_percent", "token_agreement_percent"}
    assert manifest.metrics["bleu_fp32"] == 100
    assert manifest.metrics["validation_pairs"] == len(PAIRS)
    assert len(manifest.provenance["checkpoint_sha256"]) == 64
    assert manifest.provenance["training"]["steps"] == 840


def test_the_manifest_does_not_tell_where_the_data_lay(exported: tuple[Path, list[str]]) -> None:
    manifest = json.loads((exported[0] / "bundle.json").read_text(encoding="utf-8"))
    assert manifest["provenance"]["training"]["recipe"]["train"] == ["pairs.tsv"]
    assert "/tmp" not in json.dumps(manifest)


def test_aligned_files_keep_both_names() -> None:
    cleaned = exporter._without_folders({"recipe": {"train": ["/a/x.en::/b/x.de"], "seed": 1}, "steps": 5})
    assert cleaned == {"recipe": {"train": ["x.en::x.de"], "seed": 1}, "steps": 5}
    assert exporter._without_folders({}) == {}


def test_the_card_has_the_notes_and_the_numbers(exported: tuple[Path, list[str]]) -> None:
    card = (exported[0] / "MODEL_CARD.md").read_text(encoding="utf-8")
    assert card.startswith("# en-de\n\nTranslates en to de.\n\nToy sentences | CC0.\n")
    assert "| bleu fp32 | 100.0 |" in card
    assert "| fp32: identical | True |" in card


def test_progress_is_told(exported: tuple[Path, list[str]]) -> None:
    assert exported[1] == ["decoding in PyTorch", "comparing the bundle with PyTorch, token by token", "measuring BLEU"]


def test_one_precision_ships_alone_under_the_next_free_version(tmp_path: Path, brief: None) -> None:
    (tmp_path / "toy" / "7").mkdir(parents=True)
    folder = export(CHECKPOINT, ExportOptions(tmp_path, name="toy", precisions=("fp32",)), lambda line: None)
    assert folder == tmp_path / "toy" / "8"
    assert not [path.name for path in folder.iterdir() if "int8" in path.name]
    manifest = open_bundle(folder).manifest
    assert (list(manifest.precisions), manifest.default_precision) == (["fp32"], "fp32")


def test_other_answers_than_pytorch_s_write_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(translation_family, "write_translation", spoil_graphs)
    with pytest.raises(ParityError, match="sentences differ from PyTorch"):
        export(CHECKPOINT, ExportOptions(tmp_path / "new"), lambda line: None)
    assert not (tmp_path / "new").exists()


def test_a_failure_leaves_other_models_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(translation_family, "write_translation", spoil_graphs)
    (tmp_path / "en-de" / "1").mkdir(parents=True)
    with pytest.raises(ParityError):
        export(CHECKPOINT, ExportOptions(tmp_path), lambda line: None)
    assert [path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*")] == ["en-de", "en-de/1"]


def test_too_few_sentences_are_refused(tmp_path: Path) -> None:
    few = tmp_path / "few.tsv"
    few.write_text("".join(f"{source}\t{target}\n" for source, target in PAIRS[:150]), encoding="utf-8")
    message = refuse(ExportOptions(tmp_path / "models", valid=(str(few),)))
    assert message == "parity: 150 sentences given, at least 200 are needed; pass a larger --valid file"


def test_a_checkpoint_without_samples_asks_for_some(tmp_path: Path) -> None:
    save_checkpoint(replace(load_checkpoint(CHECKPOINT), samples=()), tmp_path / "model")
    message = refuse(ExportOptions(tmp_path / "models"), tmp_path / "model")
    assert message.endswith("holds no sentences for the parity check; name a file of pairs with --valid")


def test_an_existing_version_is_refused(tmp_path: Path) -> None:
    (tmp_path / "toy" / "3").mkdir(parents=True)
    message = refuse(ExportOptions(tmp_path, name="toy", version=3))
    assert message == f"version: {tmp_path / 'toy' / '3'} already exists; choose another number or remove it"


@pytest.mark.parametrize(("precisions", "named"), [(("bf16",), "bf16"), (("fp32", "int4"), "int4"), ((), "none")])
def test_an_unknown_precision_is_refused(tmp_path: Path, precisions: tuple[str, ...], named: str) -> None:
    message = refuse(ExportOptions(tmp_path, precisions=precisions))
    assert message == f"precision: {named} is unknown; choose from fp32, int8, fp16, int8-stable"


@pytest.mark.parametrize(
    ("precisions", "default"), [(("fp16", "int8", "fp32"), "int8"), (("fp32", "fp16"), "fp32"), (("fp16",), "fp16")]
)
def test_the_default_is_for_every_processor_where_there_is_such_a_one(precisions: tuple[str, ...], default: str) -> None:
    assert ExportOptions(Path("models"), precisions=precisions).default == default


def test_what_is_written_where_it_is_asked_for_alone() -> None:
    assert ExportOptions(Path("models")).extras == ()
    assert ExportOptions(Path("models"), precisions=("int8-stable", "fp16", "fp32")).extras == ("fp16", "int8-stable")


def test_a_shortlist_needs_pairs_to_learn_from(tmp_path: Path) -> None:
    message = refuse(ExportOptions(tmp_path, precisions=("int8", "int8-shortlist")))
    assert message == "precision: int8-shortlist needs sentence pairs to learn from; add --shortlist FILE"


def test_pairs_for_a_shortlist_that_is_not_shipped_are_refused(tmp_path: Path) -> None:
    message = refuse(ExportOptions(tmp_path, precisions=("int8",), shortlist=("pairs.tsv",)))
    assert message == "shortlist: only used by int8-shortlist; add --precision int8-shortlist or remove --shortlist"


def test_a_shortlist_is_for_translation(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"format": 1, "architecture": VIT}), encoding="utf-8")
    message = refuse(ExportOptions(tmp_path / "models", shortlist=("pairs.tsv",)), tmp_path)
    assert message == f"shortlist: only for translation models; {tmp_path} is a {VIT}"


@pytest.mark.parametrize(
    ("options", "shipped"),
    [
        ({}, ["int8", "fp32"]),
        ({"shortlist": ("pairs.tsv",)}, ["int8", "fp32", "int8-shortlist"]),
        ({"shortlist": ("pairs.tsv",), "precisions": ("fp32", "int8-shortlist")}, ["fp32", "int8-shortlist"]),
    ],
)
def test_what_ships_where_nothing_else_is_said(options: dict[str, Any], shipped: list[str]) -> None:
    assert list(ExportOptions(Path("models"), **options).shipped) == shipped


@pytest.mark.parametrize("name", ["../toy", "a/b", "..", ".hidden"])
def test_a_name_that_leads_elsewhere_is_refused(tmp_path: Path, name: str) -> None:
    assert refuse(ExportOptions(tmp_path, name=name)) == f"name: {name!r} is not a plain folder name"


def test_a_folder_that_is_no_checkpoint_is_named(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="not a checkpoint folder"):
        export(tmp_path, ExportOptions(tmp_path / "models"), lambda line: None)


def test_sources_for_parity_are_spread_over_all() -> None:
    items: list[Any] = [[i] for i in range(10)]
    assert spread(items, 4) == [[0], [2], [5], [7]]
    assert spread(items, 20) == items
