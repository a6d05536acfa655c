"""Translation models of one size, trained for one time on the same pairs: BLEU by length, speed, and an alignment."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from triptych.decoding import DecodingOptions, SplitSentences
from triptych_export.exporter import ExportOptions, export
from triptych_serving.bundle.bundle import open_bundle
from triptych_serving.models.decode_model import DecodeModelOptions
from triptych_serving.models.translation.postprocess import Translation
from triptych_serving.models.translation.translator import Translator
from triptych_text.translation_scores import score_translations
from triptych_training.data.corpus import iterate_pairs
from triptych_training.loop.recipe import TranslationRecipe
from triptych_training.models.attention import CrossAttention, SelfAttention
from triptych_training.models.rnn import NONE, Rnn, RnnConfig, TranslationConfig, TranslationModel, make_translation_model
from triptych_training.models.transformer import TransformerConfig
from triptych_training.tasks.translation import train_translation

from .runs import finished, fitting_width, loss_curve

BUCKETS = ((1, 5), (6, 10), (11, 15), (16, 20), (21, 1000))  # words of a source
LENGTHS = (5, 10, 20, 40, 80)  # tokens of source and target, for which operations are counted
HEAD_DIM, STEP = 32, 8  # widths are multiples of one of them
LIMIT = 128  # tokens of a sentence

Shape = Callable[[int, int], TranslationConfig]  # of a vocabulary and a width
SHAPES: dict[str, tuple[int, Shape]] = {
    "RNN": (STEP, lambda vocabulary, width: RnnConfig(vocabulary, width, attention=NONE, max_positions=LIMIT)),
    "RNN with attention": (STEP, lambda vocabulary, width: RnnConfig(vocabulary, width, max_positions=LIMIT)),
    "Transformer": (
        HEAD_DIM,
        lambda vocabulary, width: TransformerConfig(
            vocabulary,
            width,
            heads=width // HEAD_DIM,
            feedforward_dim=4 * width,
            encoder_layers=2,
            decoder_layers=2,
            norm="pre",
            max_positions=LIMIT,
        ),
    ),
}
# Vaswani et al. 2017, table 1: operations of a layer for n tokens of d dimensions, steps that wait for each other, and the
# longest path from a source token to a target token.
THEORY = {
    "RNN": ("O(n d²)", "O(n)", "O(n)"),
    "RNN with attention": ("O(n d² + n² d)", "O(n)", "O(1); O(n) within a sentence"),
    "Transformer": ("O(n² d + n d²)", "O(1)", "O(1)"),
}


@dataclass(frozen=True)
class TranslationOptions:
    """Data and budget, the same for each model."""

    train: tuple[str, ...]
    valid: tuple[str, ...]
    languages: tuple[str, str]
    minutes: float  # CPU time of a training, reading included
    parameters: int
    vocabulary: int
    batch_tokens: int
    learning_rate: float
    sentence: str  # whose alignment is drawn


def compare_translation(
    options: TranslationOptions, work: Path, names: Iterable[str], say: Callable[[str], None]
) -> list[dict[str, Any]]:
    """Train, export and measure each of these models that has no results yet."""
    return [finished(work / name.replace(" ", "-"), partial(_measure, name, options), say) for name in names]


def make_shape(name: str, vocabulary: int, parameters: int) -> TranslationConfig:
    """Choose the width at which a model has about this number of parameters."""
    step, make = SHAPES[name]
    widths = range(step, 1024, step)
    return make(vocabulary, fitting_width(widths, parameters, lambda width: count_parameters(make(vocabulary, width))))


def count_parameters(shape: TranslationConfig) -> int:
    with torch.device("meta"):
        return sum(p.numel() for p in make_translation_model(shape).parameters())


def count_operations(model: TranslationModel, tokens: int) -> int:
    """Count the multiply-adds to read and write sentences of `tokens` tokens, each position once.

    Every matrix but tables of embeddings multiplies every token; attention computes n² scores and n² shares of d numbers.
    """
    tables = {id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding)}
    matrices = sum(p.numel() for p in model.parameters() if p.ndim > 1 and id(p) not in tables)
    matrices += model.projection.weight.numel() if id(model.projection.weight) in tables else 0
    attentions = sum(isinstance(module, SelfAttention | CrossAttention) for module in model.modules())
    attentions += isinstance(model, Rnn) and model.config.attention != NONE
    return tokens * matrices + 2 * attentions * tokens**2 * model.config.model_dim


def score_by_length(pairs: Sequence[tuple[str, str]], outputs: Sequence[str], language: str) -> dict[str, Mapping[str, float]]:
    """Compute BLEU for sources of each length, in words; "all" among them."""
    scores = {}
    for least, most in ((1, 1000), *BUCKETS):
        inside = [i for i, (source, _) in enumerate(pairs) if least <= len(source.split()) <= most]
        if inside:
            score = score_translations([outputs[i] for i in inside], [pairs[i][1] for i in inside], language)
            name = "all" if (least, most) == (1, 1000) else f"{least}+" if most == 1000 else f"{least}-{most}"
            scores[name] = {"bleu": score.bleu, "sentences": len(inside)}
    return scores


def _measure(name: str, options: TranslationOptions, folder: Path) -> dict[str, Any]:
    shape, (source, target) = make_shape(name, options.vocabulary, options.parameters), options.languages
    recipe = TranslationRecipe(
        train=options.train,
        valid=options.valid,
        source_language=source,
        target_language=target,
        vocabulary_size=options.vocabulary,
        max_length=LIMIT,
        batch_tokens=options.batch_tokens,
        max_minutes=options.minutes,
        cpu_time=True,
        epochs=1_000_000,
        validate_every=1_000_000,
        optimizer="muon",
        learning_rate=options.learning_rate,
        schedule="linear",
        average=1,
        precision="fp32",
        devices="1",
    )
    checkpoint = train_translation(recipe, shape, folder / "run", resume=True)
    exported = ExportOptions(folder / "models", "model", precisions=("fp32",), allow_inexact=True, allow_untrained=True)
    bundle = export(checkpoint, exported, lambda _: None)
    pairs = list(iterate_pairs(options.valid))
    with closing(Translator("model", 1, open_bundle(bundle), DecodeModelOptions("fp32"))) as translator:
        translator.translate([pairs[0][0]], _decoding())
        started = time.process_time()
        outputs = translator.translate([text for text, _ in pairs], _decoding())
        seconds = time.process_time() - started
        drawn = translator.translate([options.sentence], _decoding(return_alignment=True))[0]
    tokens = sum(output.hypotheses[0].token_count for output in outputs)
    model = make_translation_model(shape)
    return {
        "model": name,
        "width": shape.model_dim,
        "parameters": count_parameters(shape),
        **loss_curve(folder / "run", "tokens"),
        "bleu": score_by_length(pairs, [output.text for output in outputs], target),
        "decoded_tokens_per_second": tokens / seconds,
        "operations": {str(tokens): count_operations(model, tokens) for tokens in LENGTHS},
        "alignment": _alignment(options.sentence, drawn),
    }


def _decoding(**options: Any) -> DecodingOptions:
    return DecodingOptions(beam_size=1, max_length=LIMIT - 1, split_sentences=SplitSentences.OFF, **options)


def _alignment(sentence: str, drawn: Translation) -> dict[str, Any]:
    best = drawn.hypotheses[0]
    assert best.alignment is not None
    return {
        "source": [sentence[start:end].strip() or "</s>" for start, end in drawn.source_spans],
        "target": [best.text[start:end].strip() for start, end in best.spans],
        "weights": best.alignment.round(3).tolist(),
    }
