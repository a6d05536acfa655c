"""Model cards."""

from dataclasses import replace
from typing import Any

from triptych_export.card import Description, write_card
from triptych_serving.bundle.manifest import Manifest, read_manifest

from ...fixtures.toy import BUNDLE

MANIFEST = read_manifest(BUNDLE)
DESCRIPTION = Description("Translates en to de.", {"heads": 2})


def card(manifest: Manifest = MANIFEST, training: dict[str, Any] | None = None, notes: str = "") -> str:
    return write_card("toy", DESCRIPTION, manifest, training or {}, notes)


def test_sections_come_in_order() -> None:
    text = card(training={"steps": 5, "recipe": {"seed": 1}}, notes="Made for tests.")
    headings = [line for line in text.splitlines() if line.startswith("#")]
    assert headings == ["# toy", "## Model", "## Training", "## Quality", "## Parity with PyTorch"]
    assert "Translates en to de.\n\nMade for tests.\n" in text
    assert text.endswith("|\n")
    assert "## Training\n\nNot recorded." in card()


def test_rows_omit_data_paths_and_escape_values() -> None:
    recipe = {"train": ["/data/a.tsv"], "valid": ["/data/b.tsv"], "devices": "auto", "learning_rate": 0.1}
    text = card(training={"steps": 5, "comment": "a|b\nc", "recipe": recipe})
    for row in ("| steps | 5 |", "| learning rate | 0.1 |", "| comment | a\\|b c |"):
        assert row in text
    assert "/data" not in text


def test_the_epochs_are_those_that_were_trained() -> None:
    text = card(training={"epochs": 3, "steps": 60, "recipe": {"epochs": 1_000_000, "max_steps": 60}})
    assert "| epochs | 3 |\n| steps | 60 |\n| max steps | 60 |" in text


def test_precisions_for_gpus_are_listed() -> None:
    precisions = {**MANIFEST.precisions, "fp16": MANIFEST.precisions["fp32"]}
    assert "| precisions | fp32, int8, fp16 |\n| for GPUs (CUDA) | fp16 |" in card(replace(MANIFEST, precisions=precisions))
    assert "CUDA" not in card()
