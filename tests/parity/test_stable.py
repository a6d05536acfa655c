"""int8-stable: a row's answer does not depend on its neighbours, whatever they are."""

from pathlib import Path

import pytest

from triptych_export.errors import SourceError
from triptych_export.exporter import ExportOptions, export
from triptych_export.parity import translation as parity
from triptych_serving.bundle.bundle import Bundle, open_bundle
from triptych_serving.bundle.search_params import SearchParams
from triptych_serving.decoding.engine import EngineOptions
from triptych_serving.models.translation.translator import Translator, TranslatorOptions
from triptych_serving.scheduling.request import Row

from ..fixtures.toy import HERE, SOURCES


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    options = ExportOptions(tmp_path_factory.mktemp("models"), "toy", precisions=("int8-stable",))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parity, "BATCHES", (16,))
        return open_bundle(export(HERE / "checkpoint", options, lambda line: None))


def test_neighbours_change_no_token_and_no_score(bundle: Bundle) -> None:
    translator = Translator("toy", 1, bundle, TranslatorOptions("int8-stable", EngineOptions(workers=1, slots=24)))
    try:
        sources = translator.tokenizer.encode(SOURCES[::16])
        searches = [SearchParams(), SearchParams(beam_size=3, scores=True), SearchParams(sampling_topk=9, seed=3)]
        rows = [Row(source, 40, searches[index % 3]) for index, source in enumerate(sources)]
        for row in rows:
            translator.run([row])
        together = [Row(row.source, 40, row.search) for row in rows]
        translator.run(together)
    finally:
        translator.close()
    for alone, row in zip(rows, together, strict=True):
        assert [(h.tokens, h.score) for h in row.hypotheses] == [(h.tokens, h.score) for h in alone.hypotheses]


def test_the_card_tells_its_quality(bundle: Bundle) -> None:
    assert list(bundle.manifest.precisions) == ["int8-stable"]
    assert bundle.manifest.metrics["bleu_int8_stable"] > 99
    assert bundle.manifest.parity["int8-stable"]["token_agreement_percent"] > 99
    assert Path(bundle.folder, "weights.int8-stable.bin").exists()


def test_other_models_have_none(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"format": 1, "architecture": "triptych-vit"}', encoding="utf-8")
    with pytest.raises(SourceError, match="precision int8-stable: only for translation models"):
        export(tmp_path, ExportOptions(tmp_path / "models", precisions=("int8-stable",)), lambda line: None)
