"""Every shape that a model may have, with large random weights: the bundle's answers are PyTorch's."""

from contextlib import closing
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest
import torch

from triptych_export.families.translation import write_translation
from triptych_export.parity.translation import ParitySample, forced_agreement, teacher_force
from triptych_export.translation_source import TranslationSource
from triptych_serving.bundle.bundle import Bundle, open_bundle
from triptych_serving.bundle.manifest import SourceFrame, TargetFrame
from triptych_serving.decoding.engine import EngineOptions
from triptych_serving.models.decode_model import DecodeModelOptions
from triptych_serving.models.translation.translator import Translator
from triptych_serving.runtime.arrays import stack_rows
from triptych_serving.runtime.session import Session
from triptych_serving.scheduling.request import Row
from triptych_training.checkpoints.translation import load_checkpoint
from triptych_training.decoding.greedy import greedy
from triptych_training.models.transformer import Transformer, TransformerConfig

from ..fixtures.cuda_kernels import unfit_nodes
from ..fixtures.toy import HERE
from ..unit.training.toy import vary
from .reference import token_log_probabilities

pytestmark = pytest.mark.full

LENGTH = 24
SUPPRESSED = (7, 11, 13)
SHAPE = TransformerConfig(
    vocabulary_size=340,
    model_dim=48,
    heads=2,
    feedforward_dim=64,
    encoder_layers=2,
    decoder_layers=2,
    max_positions=40,
    dropout=0.0,
)
VARIANTS: dict[str, dict[str, Any]] = {
    "post-norm": {},
    "pre-norm, gelu": {"norm": "pre", "activation": "gelu"},
    "silu": {"activation": "silu"},
    "learned positions": {"positions": "learned"},
    "untied": {"tie_embeddings": False, "norm": "pre"},
    "odd vocabulary": {"vocabulary_size": 331, "norm": "pre"},
    "vocabulary of one block": {"vocabulary_size": 200},
    "vocabulary of no blocks": {"vocabulary_size": 337, "norm": "pre"},
    "three heads": {"heads": 3, "norm": "pre"},
    "heads of 12, filled up": {"heads": 4, "norm": "pre"},
    "heads of their own size": {"heads": 3, "head_dim": 8, "norm": "pre"},
    "large heads of an odd size": {"heads": 2, "head_dim": 37, "norm": "pre"},
    "decoder of its own": {"decoder_heads": 6, "decoder_feedforward_dim": 80, "encoder_layers": 1},
    "no biases": {"bias": False, "norm": "pre"},
    "rms norm, gated": {"norm": "pre", "norm_kind": "rms", "gated": True, "activation": "gelu_tanh", "bias": False},
    "relative positions": {"positions": "none", "relative_buckets": 32, "relative_distance": 20},
    "relative positions by layer": {
        "positions": "none",
        "relative_buckets": 32,
        "relative_distance": 20,
        "relative_by_layer": True,
        "decoder_layers": 3,
    },
    "no positions at all": {"positions": "none", "heads": 4},
    "a norm behind the embedding": {"embedding_norm": True, "scaled_embedding": False, "positions": "learned"},
    "post-norm with a last norm": {"final_norm": True, "positions": "sinusoidal-marian"},
    "pre-norm without a last norm": {
        "final_norm": False,
        "norm": "pre",
        "positions": "sinusoidal-fairseq",
        "projection_scale": 0.5,
    },
    "biased projection": {"projection_bias": True, "tie_projection": True, "tie_embeddings": False},
    "sources of another vocabulary": {"source_vocabulary_size": 410, "projection_bias": True},
    "unscaled attention": {"scaled_attention": False, "head_dim": 16},
    "start is padding": {"bos_id": 0},
    "start is end": {"bos_id": 2},
    "t5": {
        "norm": "pre",
        "norm_kind": "rms",
        "norm_epsilon": 1e-6,
        "bias": False,
        "activation": "relu",
        "positions": "none",
        "head_dim": 12,
        "scaled_attention": False,
        "scaled_embedding": False,
        "projection_scale": 48**-0.5,
        "relative_buckets": 8,
        "relative_distance": 12,
        "bos_id": 0,
        "eos_id": 1,
    },
    "one head, one layer each": {"heads": 1, "encoder_layers": 1, "decoder_layers": 1},
    "six heads of 8": {"heads": 6, "norm": "pre"},
    "all at once": {
        "vocabulary_size": 331,
        "heads": 3,
        "activation": "gelu",
        "positions": "learned",
        "tie_embeddings": False,
        "decoder_layers": 3,
    },
}


def make_model(**changes: Any) -> Transformer:
    torch.manual_seed(5)
    return vary(Transformer(replace(SHAPE, **changes)))


@pytest.fixture(scope="module", params=VARIANTS.values(), ids=VARIANTS)
def exported(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Transformer, Bundle]:
    """Limits of their own, which learned positions allow too, and tokens that are never given."""
    toy, model = load_checkpoint(HERE / "checkpoint"), make_model(**request.param)
    generation = {"suppressed_tokens": [[token] for token in SUPPRESSED]}
    languages = {"en": SourceFrame()}, {"de": TargetFrame()}
    source = TranslationSource(model, toy.tokenizer, *languages, max_source=30, max_target=36, generation=generation)
    folder = tmp_path_factory.mktemp("variant") / "bundle"
    sentences = draw_sources(model)
    sample = ParitySample(sentences, greedy(model, sentences, LENGTH, suppressed=SUPPRESSED), LENGTH)
    write_translation(source, folder, lambda line: None, sample, precisions=("fp32", "int8", "fp16"))
    return model, open_bundle(folder)


@pytest.fixture
def sources(exported: tuple[Transformer, Bundle]) -> list[list[int]]:
    return draw_sources(exported[0])


def draw_sources(model: Transformer) -> list[list[int]]:
    """Sixty sentences of 2 to 18 tokens."""
    config = model.config
    torch.manual_seed(11)
    lengths = [1 + i % 17 for i in range(60)]
    size = config.source_vocabulary_size or config.vocabulary_size
    return [[*torch.randint(4, size, (length,)).tolist(), config.eos_id] for length in lengths]


def decode(bundle: Bundle, precision: str, sources: list[list[int]], slots: int) -> list[list[int]]:
    """Rows with limits of their own, so that they come and go and stand at different positions."""
    with closing(Translator("variant", 1, bundle, DecodeModelOptions(precision, EngineOptions(1, slots)))) as translator:
        rows = [Row(source, 1 + (7 * index) % LENGTH) for index, source in enumerate(sources)]
        translator.run(rows)
        return [row.tokens for row in rows]


def test_tokens_are_those_of_pytorch(exported: tuple[Transformer, Bundle], sources: list[list[int]]) -> None:
    model, bundle = exported
    whole = greedy(model, sources, LENGTH, suppressed=SUPPRESSED)
    expected = [answer[: 1 + (7 * index) % LENGTH] for index, answer in enumerate(whole)]
    assert len({tuple(answer) for answer in whole}) >= 15
    for slots in (1, 5, 16):
        assert decode(bundle, "fp32", sources, slots) == expected


def test_int8_gives_the_same_tokens_at_any_batch_size(exported: tuple[Transformer, Bundle], sources: list[list[int]]) -> None:
    model, bundle = exported
    answers = decode(bundle, "int8", sources, 5)
    assert decode(bundle, "int8", sources, 1) == decode(bundle, "int8", sources, 16) == answers
    assert all(0 <= token < model.config.vocabulary_size for answer in answers for token in answer)
    assert len({tuple(answer) for answer in answers}) >= 10


def test_fp16_gives_the_token_behind_pytorch_s_own(exported: tuple[Transformer, Bundle], sources: list[list[int]]) -> None:
    """Large random weights, and few tokens: one in thirty may be another that is nearly as good."""
    model, bundle = exported
    answers = greedy(model, sources, LENGTH, suppressed=SUPPRESSED)
    found = teacher_force(bundle, "fp16", 7, sources, answers)
    report = forced_agreement(found, ParitySample(sources, answers, LENGTH), model.config.eos_id)
    assert report["forced_tokens"] > len(sources)
    assert report["forced_token_agreement_percent"] > 95


@pytest.mark.parametrize("kind", ["step", "search"])
def test_fp16_has_a_kernel_for_every_node_on_cuda(exported: tuple[Transformer, Bundle], kind: str) -> None:
    assert unfit_nodes(onnx.load(exported[1].path(f"{kind}.fp16.onnx"), load_external_data=False), ("candidates",)) == []


def test_scores_are_those_of_pytorch(exported: tuple[Transformer, Bundle], sources: list[list[int]]) -> None:
    """Given translations of many lengths, all in one run."""
    model, bundle = exported
    config = model.config
    torch.manual_seed(2)
    targets = [torch.randint(4, config.vocabulary_size, (1 + index % 9,)).tolist() for index in range(len(sources))]
    inputs = {
        "source": stack_rows(sources, config.pad_id, np.int64),
        "lengths": np.array([len(source) for source in sources], np.int32),
        "targets": stack_rows([[config.bos_id, *target] for target in targets], config.pad_id, np.int64),
    }
    [found] = Session(bundle.path("score.fp32.onnx")).run(inputs)
    for row, source, target in zip(found, sources, targets, strict=True):
        expected = token_log_probabilities(model, source, target)
        np.testing.assert_allclose(row[: len(target)], expected, rtol=1e-4, atol=1e-3)
