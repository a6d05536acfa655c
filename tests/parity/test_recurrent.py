"""Recurrent models: the engine's greedy and beam searches and its alignments are PyTorch's."""

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from triptych_export.errors import SourceError
from triptych_export.exporter import ExportOptions, export
from triptych_export.families.translation import write_translation
from triptych_export.parity.translation import ParitySample, check_parity
from triptych_export.translation_source import TranslationSource
from triptych_serving.bundle.bundle import open_bundle
from triptych_serving.bundle.manifest import SourceFrame, TargetFrame
from triptych_serving.bundle.search_params import SearchParams
from triptych_serving.decoding.engine import EngineOptions
from triptych_serving.models.decode_model import DecodeModelOptions
from triptych_serving.models.translation.translator import Translator
from triptych_serving.scheduling.request import Row
from triptych_training.checkpoints.translation import RNN, load_checkpoint
from triptych_training.decoding.batch_beam import SearchOptions, search
from triptych_training.decoding.greedy import greedy
from triptych_training.models.rnn import Rnn, RnnConfig

from ..fixtures.toy import HERE


def make_model(layers: int, cell: str, attention: str) -> Rnn:
    """Make a model with large weights, for varied results."""
    torch.manual_seed(1)
    model = Rnn(RnnConfig(340, 32, layers, layers, cell, attention, max_positions=40)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2.5)
    return model


@pytest.mark.parametrize(
    ("layers", "cell", "attention"),
    [
        (1, "lstm", "additive"),
        *(pytest.param(*case, marks=pytest.mark.full) for case in ((2, "gru", "multiplicative"), (2, "lstm", "none"))),
    ],
)
def test_the_engine_finds_what_pytorch_finds(
    layers: int, cell: str, attention: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = make_model(layers, cell, attention)
    frames = {"en": SourceFrame()}, {"de": TargetFrame()}
    source = TranslationSource(model, load_checkpoint(HERE / "checkpoint").tokenizer, *frames, 30, 36, family=RNN)
    write_translation(source, tmp_path / "bundle", lambda _: None, precisions=("fp32",))
    with pytest.raises(SourceError, match="a model that has no attention graphs; it is complete"):
        export(tmp_path / "bundle", ExportOptions(tmp_path / "models"), print)
    sources = [[*torch.randint(4, 340, (1 + i % 17,)).tolist(), 2] for i in range(30)]
    assert check_parity(tmp_path / "bundle", "fp32", ParitySample(sources, greedy(model, sources, 12), 12))["identical"]
    with closing(
        Translator("rnn", 1, open_bundle(tmp_path / "bundle"), DecodeModelOptions("fp32", EngineOptions(1, 4)))
    ) as engine:
        rows = [Row(ids, 11, SearchParams(beam_size=3, scores=True, alignment=True)) for ids in sources[:12]]
        engine.run(rows)
    wanted = search(model, sources[:12], SearchOptions(3, max_length=11))
    assert [row.tokens for row in rows] == [best[0].tokens for best in wanted]
    assert "rejects the kernels" not in caplog.text
    for row in rows:
        attention = row.hypotheses[0].attention
        assert attention is not None
        assert attention == pytest.approx(weights_of(model, row.source, row.tokens), abs=1e-5)


@torch.no_grad()
def weights_of(model: Rnn, source: Sequence[int], tokens: Sequence[int]) -> NDArray[np.float32]:
    """Compute the weights `[T, S]` of every token's step in PyTorch."""
    ids = torch.tensor([source])
    mask = model.source_mask(ids)
    [memory] = model.decoder.project_memory(model.encoder(ids, mask))
    state, weights = model.decoder.initial_state(memory[1], mask.sum(1) - 1), []
    for token in [model.config.bos_id, *tokens][: len(tokens)]:
        _, each, state = model.decoder.advance(torch.tensor([token]), memory, mask, state)
        weights.append(each)
    return torch.cat(weights).numpy()
