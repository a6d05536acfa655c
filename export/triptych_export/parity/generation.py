"""Parity of a decoder-only bundle: the serving engine's greedy tokens, and log-probabilities under teacher forcing.

Rows join and leave between steps, so that the rows of a step are at different positions.
"""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from triptych_export.errors import ParityError
from triptych_export.generation_source import GenerationSource
from triptych_export.parity.comparison import (
    BATCHES,
    NEAR,
    TIE,
    TOLERANCE,
    affordable,
    batches_of,
    tokens_per_second,
    workers_for,
)
from triptych_serving.bundle.bundle import Bundle
from triptych_serving.bundle.manifest import FP16, TextGenerationManifest
from triptych_serving.bundle.search_params import GREEDY, SearchParams
from triptych_serving.decoding.cuda.prompt_cache import DevicePromptCache
from triptych_serving.decoding.engine import DecodeEngine, EngineOptions
from triptych_serving.decoding.logits_processor import single_tokens
from triptych_serving.decoding.prompt_cache import PromptGraphs, PromptKVCache
from triptych_serving.decoding.prompt_lane_factory import PromptLaneFactory, PromptOptions, kernel_set
from triptych_serving.runtime.memory import HostMemory
from triptych_serving.runtime.native.library import native_kernels
from triptych_serving.runtime.session import Session
from triptych_serving.scheduling.decode_scheduler import DecodeLimits
from triptych_serving.scheduling.engine import run_rows
from triptych_serving.scheduling.request import Finish, Row

SEED, SHORTEST, LONGEST = 25, 1, 40  # tokens of a random prompt
SCORED = 64  # tokens that are scored together
DRAWN, DRAWN_TOGETHER = 128, 16  # new tokens of a text that the model writes, and texts at a time
USUAL = SearchParams(sampling_topk=50, sampling_topp=0.95, seed=SEED)  # how texts are sampled
Array = NDArray[Any]
Ids = list[int]


def draw_prompts(source: GenerationSource, count: int) -> list[Ids]:
    """Draw random prompts of ragged lengths; the seed is fixed."""
    dice, config = random.Random(SEED), source.model.config
    usual = [id for id in range(config.output_count) if id not in {*source.ends, source.pad}]
    longest = min(LONGEST, config.max_positions // 2)
    return [dice.choices(usual, k=dice.randint(SHORTEST, longest)) for _ in range(count)]


def draw_texts(source: GenerationSource, bundle: Bundle, count: int) -> list[Ids]:
    """Let fp32 write texts, each from the model's start or else a random token; the seed is fixed."""
    dice, config = random.Random(SEED), source.model.config
    usual = [id for id in range(config.output_count) if id not in {*source.ends, source.pad}]
    first = [[dice.choice(usual)] if source.start is None else [source.start] for _ in range(count)]
    longest = min(DRAWN, config.max_positions // 2)
    slots = affordable(bundle, DRAWN_TOGETHER, 1 + longest)
    with open_decoder(bundle, "fp32", slots, 1 + longest, workers_for(count, slots), samples=True) as decode:
        outputs = decode(first, longest)
    return [[*prompt, *output] for prompt, output in zip(first, outputs, strict=True)]


@contextmanager
def open_decoder(
    bundle: Bundle, precision: str, slots: int, context: int, workers: int = 1, samples: bool = False
) -> Iterator[Callable[[Sequence[Ids], int], list[Ids]]]:
    """Start the serving engine with workers of `slots` rows; yields a function that continues prompts.

    Tokens are the likeliest ones or, with `samples`, drawn from the likelier ones. It takes prompts and the largest number of
    new tokens, together at most `context`. An end is included: the model's first one, whichever was decoded.
    """
    manifest = bundle.manifest_of(TextGenerationManifest)
    lanes = PromptLaneFactory(bundle, precision, PromptOptions(context, slots, threads=1, prefix_bytes=0))
    engine = DecodeEngine(lanes.make, EngineOptions(workers, slots, DecodeLimits(1 << 30, 1 << 30, refill_rows=1)))

    def decode(prompts: Sequence[Ids], longest: int) -> list[Ids]:
        rows = [
            Row(
                prompt[:1],
                len(prompt) - 1 + longest,
                replace(USUAL, sample=index) if samples else GREEDY,
                prefix=tuple(prompt[1:]),
                prompt=len(prompt) - 1,
            )
            for index, prompt in enumerate(prompts)
        ]
        run_rows(engine, rows, "prompts")
        end = list(manifest.tokens.ends[:1])
        return [row.tokens[row.prompt :] + (end if row.finish is Finish.STOP else []) for row in rows]

    try:
        engine.start()
        yield decode
    finally:
        engine.close(drain=False)
        lanes.close()


def score(bundle: Bundle, precision: str, texts: Sequence[Ids]) -> list[tuple[Array, Array]]:
    """Return, for each text, the log-probability of every token but the first, and the likeliest token in its place.

    As in serving, native kernels are used where they are installed.
    """
    manifest = bundle.manifest_of(TextGenerationManifest)
    graphs, shape = manifest.precisions[precision], manifest.decoder
    kernels = None if precision == FP16 else native_kernels()
    used = kernel_set(shape.head_dim)
    graph = Session(bundle.path(graphs.score), saturation_free=graphs.saturation_free, kernels=kernels, kernel_set=used)
    size = PromptGraphs(graph, graph, lambda: graph), shape, max(map(len, texts), default=0), 1
    cache = DevicePromptCache(*size, HostMemory()) if precision == FP16 else PromptKVCache(*size)
    found = []
    for text in texts:
        starts = range(0, len(text) - 1, SCORED)
        notes = [note for start in starts for note in cache.score(0, text[start : start + SCORED + 1], start, 1)]
        found.append((np.array([note.log_probability for note in notes]), np.array([note.top[0][0] for note in notes])))
    return found


@torch.inference_mode()
def check_generation(
    source: GenerationSource, bundle: Bundle, prompts: Sequence[Ids], longest: int
) -> tuple[dict[str, Any], list[Ids]]:
    """Check every greedy token of fp32 and every log-probability; return the report and the texts, prompts included.

    The largest batch continues all prompts, and smaller ones a part of them, by up to `longest` tokens. A token must be
    PyTorch's likeliest one after the text before it, or tie with that.

    Raises:
        ParityError: a token or a log-probability differs; shows the first difference.
    """
    context = max(map(len, prompts)) + longest
    batches = batches_of(bundle, len(prompts), context)
    checked: dict[tuple[int, ...], tuple[int, Array]] = {}  # by prompt and output, which are mostly the same in all batches
    for rows, chosen in batches.items():
        with open_decoder(bundle, "fp32", rows, context, workers_for(len(chosen), rows)) as decode:
            outputs = decode([prompts[index] for index in chosen], longest)
        for index, output in zip(chosen, outputs, strict=True):
            if (key := (index, *output)) not in checked:
                checked[key] = _check_row(source, index, prompts[index], output, rows)
    ties = sum(count for count, _ in checked.values())
    texts = [[*prompt, *output] for prompt, output in zip(prompts, outputs, strict=True)]  # of the last batch size, with all
    expected = [checked[index, *output][1] for index, output in enumerate(outputs)]
    difference = _compare_scores(expected, score(bundle, "fp32", texts))
    return {
        "samples": len(prompts),
        "distinct_outputs": len({tuple(text) for text in texts}),
        "tokens": sum(map(len, texts)) - sum(map(len, prompts)),
        "batches": list(batches),
        "largest_difference": {"log_probabilities": float(f"{difference:.3g}")},
        "identical": not ties,
        **({"ties": ties} if ties else {}),
    }, texts


def compare_generation(
    source: GenerationSource, texts: Sequence[Ids], found: Mapping[str, Sequence[tuple[Array, Array]]]
) -> dict[str, dict[str, Any]]:
    """Report on each precision under teacher forcing: percent of equal and of nearly as good next tokens, and the mean change.

    `found` has what `score` returned of the texts.
    """
    figures: dict[str, list[Array]] = {precision: [] for precision in found}
    for index, text in enumerate(texts if found else ()):
        if len(text) < 2:  # it ended at once: there is no next token
            continue
        expected = _log_probabilities(source, text)
        places, best, top = np.arange(len(expected)), expected.argmax(-1), expected.max(-1)
        for precision, scores in found.items():
            likely, chosen = scores[index]
            near = expected[places, chosen] - top >= np.log(NEAR)
            figures[precision].append(np.stack([best == chosen, near, np.abs(likely - expected[places, text[1:]])]))
    means = {
        precision: (sum(part.shape[1] for part in parts), np.hstack(parts).mean(1)) for precision, parts in figures.items()
    }
    return {
        precision: {
            "decisions": count,
            "top_1_agreement_percent": round(100 * float(equal), 2),
            "near_agreement_percent": round(100 * float(near), 2),
            "mean_log_probability_difference": float(f"{change:.3g}"),
        }
        for precision, (count, (equal, near, change)) in means.items()
    }


def perplexity(found: Sequence[tuple[Array, Array]]) -> float:
    """Compute the perplexity of texts, each read from its beginning, of what `score` returned."""
    return float(np.exp(-np.concatenate([likely for likely, _ in found]).mean(dtype=np.float64)))


def speeds(bundle: Bundle, precision: str, prompts: Sequence[Ids], longest: int) -> dict[str, float]:
    """Measure tokens per second of greedy decoding on the CPU, with one row and with several."""
    found, context = {}, max(map(len, prompts)) + longest
    for rows in BATCHES[::2]:
        with open_decoder(bundle, precision, affordable(bundle, rows, context), context) as decode:
            found[f"tokens_per_second_{rows}_rows"] = tokens_per_second(partial(decode, prompts[:rows], longest))
    return found


def _check_row(source: GenerationSource, index: int, prompt: Ids, output: Ids, rows: int) -> tuple[int, Array]:
    """Check one row's tokens; return the number of ties, and PyTorch's log-probability of every token but the first."""
    text = [*prompt, *output]
    expected = _log_probabilities(source, text)
    likely = expected[np.arange(len(expected)), text[1:]]
    chosen, expected = likely[len(prompt) - 1 :].copy(), expected[len(prompt) - 1 :]
    if output[-1] in source.ends:
        chosen[-1] = expected[-1, list(source.ends)].max()
    expected[:, list(single_tokens(source.generation.get("suppressed_tokens", ())))] = -np.inf  # never generated
    gaps = expected.max(-1) - chosen
    if (wrong := ~(gaps < TIE)).any():
        place = int(wrong.argmax())
        raise ParityError(
            f"prompt {index}, token {place}, in batches of {rows} rows: the bundle has {output[place]}, "
            f"PyTorch {int(expected[place].argmax())}, which is more likely by {gaps[place]:.3g}"
        )
    return int((gaps > 0).sum()), likely


def _compare_scores(expected: Sequence[Array], found: Sequence[tuple[Array, Array]]) -> float:
    """Compare the log-probabilities of all tokens with PyTorch's; return the largest difference."""
    largest = 0.0
    for index, (wanted, (likely, _)) in enumerate(zip(expected, found, strict=True)):
        differences = np.abs(likely - wanted)
        if (wrong := ~(differences <= TOLERANCE * np.maximum(1, np.abs(wanted)))).any():
            place = int(wrong.argmax())
            raise ParityError(f"text {index}, token {place + 1}: the log-probability differs by {differences[place]:.3g}")
        largest = max(largest, float(differences.max(initial=0)))
    return largest


@torch.inference_mode()
def _log_probabilities(source: GenerationSource, text: Ids) -> NDArray[np.float32]:
    """Compute PyTorch's log-probabilities after every token of a text but the last, `[T-1, V]`."""
    values: NDArray[np.float32] = source.model(torch.tensor([text[:-1]]))[0].log_softmax(-1).numpy()
    return values
