"""The model card."""

from dataclasses import replace

from triptych_export.card import Description, write_card
from triptych_serving.bundle.manifest import read_manifest

from ...fixtures.toy import BUNDLE

MANIFEST = read_manifest(BUNDLE)
DESCRIPTION = Description("Translates en to de.", {"heads": 2})


def test_sections_come_in_order() -> None:
    card = write_card("toy", DESCRIPTION, MANIFEST, {"steps": 5, "recipe": {"seed": 1}}, "Made for tests.")
    headings = [line for line in card.splitlines() if line.startswith("#")]
    assert headings == ["# toy", "## Model", "## Training", "## Quality", "## Parity with PyTorch"]
    assert "Translates en to de.\n\nMade for tests.\n" in card
    assert card.endswith("|\n")


def test_training_says_how_and_not_where_from() -> None:
    recipe = {"train": ["/data/a.tsv"], "valid": ["/data/b.tsv"], "devices": "auto", "learning_rate": 0.1}
    card = write_card("toy", DESCRIPTION, MANIFEST, {"steps": 5, "recipe": recipe}, "")
    assert "| steps | 5 |" in card
    assert "| learning rate | 0.1 |" in card
    assert "/data" not in card


def test_what_is_not_known_is_said() -> None:
    assert "## Training\n\nNot recorded." in write_card("toy", DESCRIPTION, MANIFEST, {}, "")


def test_no_value_breaks_the_table() -> None:
    card = write_card("toy", DESCRIPTION, MANIFEST, {"comment": "a|b\nc"}, "")
    assert "| comment | a\\|b c |" in card


def test_what_is_for_gpus_is_named() -> None:
    precisions = {**MANIFEST.precisions, "fp16": MANIFEST.precisions["fp32"]}
    card = write_card("toy", DESCRIPTION, replace(MANIFEST, precisions=precisions), {}, "")
    assert "| precisions | fp32, int8, fp16 |\n| for GPUs (CUDA) | fp16 |" in card
    assert "CUDA" not in write_card("toy", DESCRIPTION, MANIFEST, {}, "")
