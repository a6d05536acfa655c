"""Every shape that a model may have, with large random weights: the bundle's answers are PyTorch's."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from triptych_export.translation_family import write_translation
from triptych_serving.bundle import Bundle, open_bundle
from triptych_serving.engine import EngineOptions
from triptych_serving.row import Row
from triptych_serving.translator import Translator, TranslatorOptions
from triptych_training.checkpoint import Checkpoint, load_checkpoint
from triptych_training.greedy import greedy
from triptych_training.transformer import Transformer, TransformerConfig

from ..fixtures.toy import HERE

pytestmark = pytest.mark.full

LENGTH = 24
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
    "three heads": {"heads": 3, "norm": "pre"},
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
    model = Transformer(replace(SHAPE, **changes)).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
            if ".layers." in name and parameter.ndim == 2:
                parameter.mul_(3)
    return model


@pytest.fixture(scope="module", params=VARIANTS.values(), ids=VARIANTS)
def exported(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Transformer, Bundle]:
    toy, model = load_checkpoint(HERE / "checkpoint"), make_model(**request.param)
    folder = tmp_path_factory.mktemp("variant") / "bundle"
    write_translation(Checkpoint(model, toy.tokenizer, "en", "de"), folder, lambda line: None)
    return model, open_bundle(folder)


@pytest.fixture
def sources(exported: tuple[Transformer, Bundle]) -> list[list[int]]:
    """Sixty sentences of 2 to 18 tokens."""
    config = exported[0].config
    torch.manual_seed(11)
    lengths = [1 + i % 17 for i in range(60)]
    return [[*torch.randint(4, config.vocabulary_size, (length,)).tolist(), config.eos_id] for length in lengths]


def decode(bundle: Bundle, precision: str, sources: list[list[int]], slots: int) -> list[list[int]]:
    """Rows with limits of their own, so that they come and go and stand at different positions."""
    translator = Translator("variant", 1, bundle, TranslatorOptions(precision, EngineOptions(1, slots)))
    try:
        rows = [Row(source, 1 + (7 * index) % LENGTH) for index, source in enumerate(sources)]
        translator.run(rows)
        return [row.tokens for row in rows]
    finally:
        translator.close()


def test_tokens_are_those_of_pytorch(exported: tuple[Transformer, Bundle], sources: list[list[int]]) -> None:
    model, bundle = exported
    whole = greedy(model, sources, LENGTH)
    expected = [answer[: 1 + (7 * index) % LENGTH] for index, answer in enumerate(whole)]
    assert len({tuple(answer) for answer in whole}) >= 20
    for slots in (1, 5, 16):
        assert decode(bundle, "fp32", sources, slots) == expected


def test_int8_runs(exported: tuple[Transformer, Bundle], sources: list[list[int]]) -> None:
    model, bundle = exported
    answers = decode(bundle, "int8", sources, 5)
    assert all(0 <= token < model.config.vocabulary_size for answer in answers for token in answer)
    assert len({tuple(answer) for answer in answers}) >= 10
