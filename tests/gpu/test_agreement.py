"""Tokens in fp16 on the device are those of fp32 on the CPU; with a checkpoint of one's own, its too.

TRIPTYCH_CHECKPOINT=runs/en-de/model TRIPTYCH_PAIRS=valid.tsv.gz pytest -m gpu tests/gpu/test_agreement.py

TRIPTYCH_BUNDLE is its bundle, where there is one with fp32 and fp16; else it is exported.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest
from sacrebleu.metrics.bleu import BLEU

from triptych.decoding import DecodingOptions
from triptych_export.exporter import ExportOptions, export
from triptych_serving.bundle.bundle import Bundle, open_bundle
from triptych_serving.bundle.manifest import TranslationManifest
from triptych_serving.decoding.engine import EngineOptions
from triptych_serving.models.decode_model import DecodeModelOptions
from triptych_serving.models.translation.translator import Translator
from triptych_serving.runtime.device import CPU, Device
from triptych_serving.runtime.memory import Memory
from triptych_serving.text.translation_tokenizer import TranslationTokenizer
from triptych_training.checkpoints.translation import Checkpoint, load_checkpoint
from triptych_training.data.corpus import Pair, read_pairs
from triptych_training.decoding.greedy import greedy

from ..fixtures.toy import HERE, PAIRS
from .rig import Rig

pytestmark = pytest.mark.gpu

OWN = "own"
BATCH = 64
SENTENCES = 1_000
LEAST_AGREEMENT = 99.5  # percent of tokens
MOST_BLEU = 0.1


@dataclass(frozen=True)
class Model:
    """A checkpoint, its bundle with fp16, and sentences with their references."""

    checkpoint: Checkpoint
    bundle: Bundle
    pairs: Sequence[Pair]


@pytest.fixture(scope="module", params=["toy", OWN])
def model(request: pytest.FixtureRequest, bundle: Bundle, tmp_path_factory: pytest.TempPathFactory) -> Model:
    if request.param != OWN:
        return Model(load_checkpoint(HERE / "checkpoint"), bundle, PAIRS)
    checkpoint, pairs = os.environ.get("TRIPTYCH_CHECKPOINT"), os.environ.get("TRIPTYCH_PAIRS")
    if not checkpoint or not pairs:
        pytest.skip("names no checkpoint: set TRIPTYCH_CHECKPOINT and TRIPTYCH_PAIRS")
    folder = os.environ.get("TRIPTYCH_BUNDLE")
    if not folder:
        options = ExportOptions(tmp_path_factory.mktemp("own"), precisions=("fp32", "fp16"))
        folder = str(export(Path(checkpoint), options, lambda line: None))
    return Model(load_checkpoint(Path(checkpoint)), open_bundle(Path(folder)), read_pairs([pairs])[:SENTENCES])


def batches(model: Model) -> Iterator[list[list[int]]]:
    """Ids of the sources, so many at a time."""
    manifest = model.bundle.manifest_of(TranslationManifest)
    limits = manifest.limits
    codec = TranslationTokenizer(model.bundle.path(manifest.tokenizers[0]), limits.max_source_tokens, limits.max_target_tokens)
    ids = codec.encode([source for source, _ in model.pairs])
    yield from (ids[start : start + BATCH] for start in range(0, len(ids), BATCH))


def test_tokens_teacher_forced(model: Model, memory: Memory) -> None:
    """After the same words, the same next one."""
    most = model.bundle.manifest_of(TranslationManifest).limits.max_target_tokens - 1
    end = model.checkpoint.model.config.eos_id
    rig = Rig(model.bundle, memory, BATCH, captures=True)
    hits = total = 0
    for sources in batches(model):
        found = greedy(model.checkpoint.model, sources, most)
        expected = [[*tokens, end][:most] for tokens in found]
        rig.begin(0, sources)
        for position in range(max(map(len, expected))):
            rig.step(len(sources))
            said = rig.read(rig.tokens.first(len(sources))).tolist()
            live = [(row, tokens[position]) for row, tokens in enumerate(expected) if position < len(tokens)]
            hits += sum(said[row] == token for row, token in live)
            total += len(live)
            taught = [tokens[min(position, len(tokens) - 1)] for tokens in expected]
            rig.put(rig.tokens, 0, taught)
    assert total > 1_000
    assert 100 * hits / total >= LEAST_AGREEMENT


@pytest.mark.parametrize("beam", [1, 4])
def test_translations_are_as_good(model: Model, device: Device, beam: int) -> None:
    scores = []
    for precision, where in (("fp32", CPU), ("fp16", device)):
        engine = EngineOptions(workers=1, slots=BATCH, devices=(where,))
        with closing(Translator("model", 1, model.bundle, DecodeModelOptions(precision, engine))) as translator:
            outputs = translator.translate([source for source, _ in model.pairs], DecodingOptions(beam_size=beam))
        references = [target for _, target in model.pairs]
        scores.append(BLEU().corpus_score([output.text for output in outputs], [references]).score)
    assert abs(scores[0] - scores[1]) <= MOST_BLEU
