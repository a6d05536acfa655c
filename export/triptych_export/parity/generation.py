"""Parity of a decoder-only bundle: every greedy token against PyTorch, and log-probabilities under teacher forcing.

Rows join and leave between steps, as in a server, so that the rows of a step are at different positions. Short prompts are read
together, long ones in chunks.
"""

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from triptych_export.errors import ParityError
from triptych_export.generation_source import GenerationSource
from triptych_serving.bundle.bundle import Bundle
from triptych_serving.bundle.manifest import TextGenerationManifest
from triptych_serving.runtime.arrays import stack_rows
from triptych_serving.runtime.session import Session

BATCHES = (1, 3, 16)
SEED, SHORTEST, LONGEST = 25, 1, 40  # tokens of a random prompt
CHUNK = 16  # tokens of a prompt that are read together
SCORED = 64  # tokens that are scored together
TIE = 1e-3  # closer logits count as equal, since another order of summation may swap them
TOLERANCE = 1e-3  # of log-probabilities, relative to their magnitude if above 1
NEAR = 0.9  # of the best token's probability: a choice that is nearly as good
Array = NDArray[Any]
Ids = list[int]


@dataclass(frozen=True)
class Sample:
    """Prompts, and how many tokens are generated at most."""

    prompts: Sequence[Ids]
    max_length: int


def draw_prompts(source: GenerationSource, count: int) -> list[Ids]:
    """Draw random prompts of ragged lengths; the seed is fixed."""
    dice, config = random.Random(SEED), source.model.config
    usual = [id for id in range(config.output_count) if id not in {*source.ends, source.pad}]
    longest = min(LONGEST, config.max_positions // 2)
    return [dice.choices(usual, k=dice.randint(SHORTEST, longest)) for _ in range(count)]


class BundleDecoder:
    """Decoder over the graphs of one precision, on the CPU.

    Args:
        bundle: a text generation bundle.
        precision: of the graphs.
        rows: maximum number of rows of a step.
        capacity: positions of the caches; 0: the model's limit.
    """

    def __init__(self, bundle: Bundle, precision: str, rows: int, capacity: int = 0) -> None:
        self._manifest = manifest = bundle.manifest_of(TextGenerationManifest)
        self._graphs, self._bundle = manifest.precisions[precision], bundle
        shape, self._capacity = manifest.decoder, capacity or manifest.limits.max_context
        self._names = [f"{kind}_{layer}" for layer in range(shape.layers) for kind in ("key", "value")]
        self._cache = np.zeros((len(self._names), rows, shape.heads, self._capacity, shape.head_dim), np.float32)

    def generate(self, prompts: Sequence[Ids], longest: int) -> list[Ids]:
        """Continue each prompt by the likeliest tokens, up to an end, which is included, or `longest` tokens."""
        step, count = self._open(self._graphs.step), self._cache.shape[1]
        waiting, outputs = list(range(len(prompts)))[::-1], [list[int]() for _ in prompts]
        tokens, positions = np.zeros((count, 1), np.int64), np.zeros(count, np.int32)
        running: list[int] = []
        while waiting or running:
            joined = [waiting.pop() for _ in range(min(len(waiting), count - len(running)))]
            self._read(step, [prompts[index] for index in joined], len(running))
            for index in joined:
                tokens[len(running), 0], positions[len(running)] = prompts[index][-1], len(prompts[index]) - 1
                running.append(index)
            rows = len(running)
            self._run(step, tokens[:rows], positions[:rows], 0, self._capacity, {"next": tokens[:rows, 0]})
            positions[:rows] += 1
            for row in reversed(range(rows)):
                index, token = running[row], int(tokens[row, 0])
                outputs[index].append(token)
                if token in self._manifest.tokens.ends or len(outputs[index]) == longest:
                    last = len(running) - 1
                    running[row], tokens[row], positions[row] = running[last], tokens[last], positions[last]
                    used = slice(0, int(positions[last]))
                    self._cache[:, row, :, used] = self._cache[:, last, :, used]
                    running.pop()
        return outputs

    def score(self, texts: Sequence[Ids]) -> list[tuple[Array, Array]]:
        """Return, for each text, the log-probability of every token but the first, and the likeliest token in its place."""
        graph = self._open(self._graphs.score)
        found = []
        for text in texts:
            parts = []
            for start in range(0, len(text) - 1, SCORED):
                tokens = np.array([text[start : min(start + SCORED, len(text) - 1)]])
                targets = np.array([text[start + 1 : start + 1 + tokens.shape[1]]])
                likely, best = np.zeros(targets.shape, np.float32), np.zeros((targets.size, 1), np.int64)
                results: dict[str, Array] = {
                    "target_log_probabilities": likely,
                    "top_tokens": best,
                    "top_log_probabilities": np.zeros(best.shape, np.float32),
                }
                given: dict[str, Array] = {"targets": targets, "candidates": np.ones(1, np.int64)}
                positions = np.array([start + tokens.shape[1] - 1], np.int32)
                self._run(graph, tokens, positions, 0, self._capacity, results, given)
                parts.append((likely[0], best[:, 0]))
            found.append((np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts])))
        return found

    def _read(self, step: Session, prompts: Sequence[Ids], first: int) -> None:
        """Read all tokens of new rows but the last: short prompts at once, longer ones in chunks."""
        short = [prompt[:-1] for prompt in prompts]
        if len(prompts) > 1 and 1 < max(map(len, short)) <= CHUNK and min(map(len, short)):
            tokens = stack_rows(short, self._manifest.tokens.pad, np.int64)
            self._run(step, tokens, np.array([len(row) - 1 for row in short], np.int32), first, tokens.shape[1])
            return
        for row, prompt in enumerate(short, first):
            for start in range(0, len(prompt), CHUNK):
                tokens = np.array([prompt[start : start + CHUNK]])
                self._run(step, tokens, np.array([start + tokens.shape[1] - 1], np.int32), row, self._capacity)

    def _run(
        self,
        graph: Session,
        tokens: Array,
        positions: Array,
        first: int,
        total: int,
        results: dict[str, Array] | None = None,
        given: dict[str, Array] | None = None,
    ) -> None:
        """Run a graph over the caches of the rows from `first` on."""
        rows = len(tokens)
        caches = [part[first : first + rows] for part in self._cache]
        inputs = {
            **{"tokens": tokens, "positions": positions, "total": np.array([total], np.int32)},
            **(given or {"forced": np.full(rows, -1, np.int64)}),
            **{f"cache_{name}": part for name, part in zip(self._names, caches, strict=True)},
        }
        outputs = {
            **({"next": np.zeros(rows, np.int64)} if results is None else results),
            **{f"present_{name}": part for name, part in zip(self._names, caches, strict=True)},
        }
        graph.bind(inputs, outputs).run()

    def _open(self, name: str) -> Session:
        return Session(self._bundle.path(name), saturation_free=self._graphs.saturation_free)


@torch.inference_mode()
def check_generation(source: GenerationSource, bundle: Bundle, sample: Sample) -> tuple[dict[str, Any], list[Ids]]:
    """Check every greedy token of fp32 and every log-probability; return the report and the texts, prompts included.

    A token must be PyTorch's likeliest one after the text before it, or tie with that.

    Raises:
        ParityError: a token or a log-probability differs; shows the first difference.
    """
    texts: list[Ids] = []
    ties, batches = 0, []
    for rows in sorted({affordable(bundle, rows) for rows in BATCHES}):
        outputs = BundleDecoder(bundle, "fp32", rows).generate(sample.prompts, sample.max_length)
        batches.append(rows)
        texts = [[*prompt, *output] for prompt, output in zip(sample.prompts, outputs, strict=True)]
        for index, (prompt, output) in enumerate(zip(sample.prompts, outputs, strict=True)):
            ties += _check_row(source, index, prompt, output, rows)
    difference = _compare_scores(source, texts, BundleDecoder(bundle, "fp32", 1).score(texts))
    return {
        "samples": len(sample.prompts),
        "distinct_outputs": len({tuple(text) for text in texts}),
        "tokens": sum(map(len, texts)) - sum(map(len, sample.prompts)),
        "batches": batches,
        "largest_difference": {"log_probabilities": float(f"{difference:.3g}")},
        "identical": not ties,
        **({"ties": ties} if ties else {}),
    }, texts


def compare_generation(source: GenerationSource, bundle: Bundle, precision: str, texts: Sequence[Ids]) -> dict[str, float]:
    """Measure a precision under teacher forcing: percent of equal and of nearly as good next tokens, and the mean change."""
    equal, near, changes = [], [], []
    for text, (likely, best) in zip(texts, BundleDecoder(bundle, precision, 1).score(texts), strict=True):
        expected = _log_probabilities(source, text)
        chosen = expected[np.arange(len(best)), best]
        equal += (expected.argmax(-1) == best).tolist()
        near += (chosen - expected.max(-1) >= np.log(NEAR)).tolist()
        changes += np.abs(likely - expected[np.arange(len(best)), text[1:]]).tolist()
    return {
        "decisions": len(equal),
        "top_1_agreement_percent": round(100 * float(np.mean(equal)), 2),
        "near_agreement_percent": round(100 * float(np.mean(near)), 2),
        "mean_log_probability_difference": float(f"{np.mean(changes):.3g}"),
    }


def perplexity(bundle: Bundle, precision: str, texts: Sequence[Ids]) -> float:
    """Measure the perplexity of texts, each read from its beginning."""
    found = BundleDecoder(bundle, precision, 1).score(texts)
    return float(np.exp(-np.concatenate([likely for likely, _ in found]).mean(dtype=np.float64)))


def speeds(bundle: Bundle, precision: str, prompts: Sequence[Ids], longest: int) -> dict[str, float]:
    """Measure tokens per second of greedy decoding on the CPU, with one row and with several."""
    found = {}
    for rows in BATCHES[::2]:
        decoder = BundleDecoder(bundle, precision, affordable(bundle, rows))
        start = time.perf_counter()
        outputs = decoder.generate(prompts[:rows], longest)
        found[f"tokens_per_second_{rows}_rows"] = round(sum(map(len, outputs)) / (time.perf_counter() - start), 1)
    return found


def affordable(bundle: Bundle, rows: int, limit: int = 768 << 20) -> int:
    """Limit the rows by the cache memory of a large model, to at least three."""
    manifest = bundle.manifest_of(TextGenerationManifest)
    shape = manifest.decoder
    return min(rows, max(3, limit // (8 * shape.layers * shape.heads * shape.head_dim * manifest.limits.max_context)))


def _check_row(source: GenerationSource, index: int, prompt: Ids, output: Ids, rows: int) -> int:
    """Check one row's tokens; return the number of ties."""
    expected = _log_probabilities(source, [*prompt, *output])[len(prompt) - 1 :]
    gaps = expected.max(-1) - expected[np.arange(len(output)), output]
    if (wrong := ~(gaps < TIE)).any():
        place = int(wrong.argmax())
        raise ParityError(
            f"prompt {index}, token {place}, in batches of {rows} rows: the bundle has {output[place]}, "
            f"PyTorch {int(expected[place].argmax())}, which is more likely by {gaps[place]:.3g}"
        )
    return int((gaps > 0).sum())


def _compare_scores(source: GenerationSource, texts: Sequence[Ids], found: Sequence[tuple[Array, Array]]) -> float:
    """Compare the log-probabilities of all tokens; return the largest difference."""
    largest = 0.0
    for index, (text, (likely, _)) in enumerate(zip(texts, found, strict=True)):
        expected = _log_probabilities(source, text)[np.arange(len(text) - 1), text[1:]]
        differences = np.abs(likely - expected)
        if (wrong := ~(differences <= TOLERANCE * np.maximum(1, np.abs(expected)))).any():
            place = int(wrong.argmax())
            raise ParityError(f"text {index}, token {place + 1}: the log-probability differs by {differences[place]:.3g}")
        largest = max(largest, float(differences.max(initial=0)))
    return largest


@torch.inference_mode()
def _log_probabilities(source: GenerationSource, text: Ids) -> NDArray[np.float32]:
    """Compute PyTorch's log-probabilities after every token of a text but the last, `[T-1, V]`."""
    values: NDArray[np.float32] = source.model(torch.tensor([text[:-1]]))[0].log_softmax(-1).numpy()
    return values
