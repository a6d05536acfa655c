"""The comparison of architectures, with tiny sizes."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from triptych_training.models.rnn import RnnConfig, make_translation_model
from triptych_training.models.transformer import Transformer, TransformerConfig

from ...benchmarks.architectures import translation
from ...benchmarks.architectures.__main__ import main
from ...benchmarks.architectures.images import ARCHITECTURES
from ...benchmarks.architectures.images import count_parameters as count_image_parameters
from ...benchmarks.architectures.images import make_shape as make_image_shape
from ...benchmarks.architectures.translation import SHAPES, count_operations, count_parameters, make_shape
from ..training.toy_pictures import write_pictures

SAMPLES = Path(__file__).parents[2] / "fixtures/checkpoint/samples.tsv"
TINY = "--minutes 0.03 --parameters 20000 --vocabulary 340 --sentence"
PICTURES = "--image-counts 6 --image-test 6 --image-minutes 0.002 --image-parameters 10000"


def test_models_have_about_the_same_number_of_parameters() -> None:
    for count in (count_parameters(make_shape(name, 4_000, 1_500_000)) for name in SHAPES):
        assert abs(count / 1_500_000 - 1) < 0.15
    for count in (count_image_parameters(make_image_shape(name, 250_000)) for name in ARCHITECTURES):
        assert abs(count / 250_000 - 1) < 0.25


def test_operations_grow_with_the_square_of_the_length_only_with_attention() -> None:
    plain = make_translation_model(RnnConfig(50, 8, attention="none"))
    assert count_operations(plain, 20) == 2 * count_operations(plain, 10)
    cells = 2 * 3 * (8 * 4 + 4 * 4) + 3 * (8 * 8 + 8 * 8)  # both directions of the encoder, decoder
    assert count_operations(plain, 1) == cells + 8 * 8 + 50 * 8  # bridge, projection
    attending = Transformer(TransformerConfig(50, 8, 1, 16, 1, 1))
    own, cross, wide = 4 * 8 * 8, 4 * 8 * 8, 2 * 8 * 16
    assert count_operations(attending, 10) == 10 * (own + wide + own + cross + wide + 50 * 8) + 3 * 2 * 10 * 10 * 8


@pytest.mark.full
@pytest.mark.parametrize("name", ["ResNet", "RNN"])
def test_results_are_written_and_not_computed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr("triptych_training.loop.trainer.METRIC_STEPS", 1)
    monkeypatch.setattr(translation, "LIMIT", 48)
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("".join(SAMPLES.read_text(encoding="utf-8").splitlines(keepends=True)[:200]), encoding="utf-8")
    data = ["--images", write_pictures(tmp_path / "pictures", each=8), *PICTURES.split()]
    if name == "RNN":
        data = ["--train", str(pairs), "--valid", str(pairs), *TINY.split(), "My brother paints."]
    for _ in range(2):
        result = CliRunner().invoke(main, [str(tmp_path / "work"), *data, "--only", name])
        assert result.exit_code == 0, result.output
    assert "training in" not in result.output
    table = (tmp_path / "work/comparison.md").read_text(encoding="utf-8")
    assert f"| {name} |" in table
    assert (tmp_path / "work/comparison.png").read_bytes().startswith(b"\x89PNG")
    results = [json.loads(path.read_text(encoding="utf-8")) for path in (tmp_path / "work").glob("*/*/results.json")]
    [found] = results
    assert len(found["losses"]) == found["steps"] > 0
    if name == "RNN":
        assert len(found["alignment"]["weights"]) == len(found["alignment"]["target"])
        assert found["bleu"]["all"]["sentences"] == 200
