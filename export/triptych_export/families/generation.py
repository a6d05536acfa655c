"""Export of decoder-only models."""

from collections.abc import Sequence
from contextlib import nullcontext
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from triptych_export.bundle_files import (
    PRECISIONS,
    WEIGHT_BITS,
    first_manifest,
    graphs_member,
    write_graph,
    write_manifest,
    write_tokenizer,
    written_precisions,
)
from triptych_export.card import Description
from triptych_export.families.family import Report, Say, free_memory
from triptych_export.generation_source import GenerationSource
from triptych_export.graphs.float16 import check_activations
from triptych_export.graphs.generation import write_int8_caches
from triptych_export.graphs.tracing import GENERATION_GRAPHS, trace_generation
from triptych_export.graphs.translation import GraphSettings
from triptych_export.graphs.weight_folding import cache_head_dim, cache_layers, fold_gpt, fuse_norms
from triptych_export.onnx_files.decoder import OnnxGpt
from triptych_export.parity.comparison import spread
from triptych_export.parity.generation import (
    LONGEST,
    check_generation,
    compare_generation,
    draw_prompts,
    draw_texts,
    perplexity,
    score,
    speeds,
)
from triptych_export.quantization.calibration import blocked_linears, calibrate, calibrate_blocks
from triptych_export.quantization.weights_file import WeightsFile
from triptych_serving.bundle.bundle import open_bundle
from triptych_serving.bundle.manifest import FP16, IMAGE_GENERATION, INT4, INT8, TEXT_GENERATION, TRANSLATION, WITH_INT8_CACHES
from triptych_serving.decoding.logits_processor import single_tokens
from triptych_training.models.gpt import Gpt

TEMPLATE, COLOURS = "chat_template.jinja", "clusters.npy"
MOST_PROMPTS, FEWEST_PROMPTS, WORK = 100, 32, 10_000_000_000  # parameters times prompts: some minutes
NEW_TOKENS = 24  # of each prompt
DEFAULT_LENGTH = 256  # generated tokens of a request without `max_tokens`, if the checkpoint has no such setting
READ = 256  # tokens of a text for calibration and perplexity
TEXTS = 64
MOST_CHARACTERS = 16  # of a token; the rest of a long text is not tokenized


class GenerationFamily:
    """A decoder-only model, trained here or elsewhere; an ONNX file that is kept has its own precision alone.

    `texts` are for calibration, parity and perplexity; without them the model writes some, prompts are random tokens, and
    there is no perplexity. `shipped` are the precisions that the bundle will have.
    """

    def __init__(self, source: GenerationSource, texts: Sequence[str], shipped: Sequence[str]) -> None:
        self.source, self.kept = source, source.model.precision if isinstance(source.model, OnnxGpt) else ""
        self.default_precisions = (self.kept,) if self.kept else shipped
        self.precisions = self.default_precisions if self.kept else written_precisions(shipped)
        self.default_name, self.provenance = source.family, source.provenance
        self.texts = texts or source.samples
        self._compared: Sequence[list[int]] = ()  # texts for the comparison, known once the graphs are written

    def describe(self) -> Description:
        config = self.source.model.config
        heads = f"{config.heads}, {config.kv_heads or config.heads}, {config.attention.head_dim}"
        rows = {
            "layers, width": f"{config.layers}, {config.model_dim}",
            "heads, of keys and values, size": heads,
            "vocabulary": config.vocabulary_size,
            "longest text (tokens)": config.max_positions,
        }
        if languages := self.source.languages:
            return Description(f"Translates between {len(languages)} languages: {', '.join(languages.values())}.", rows)
        return Description("Continues texts." if self.source.tokenizer else "Completes images.", rows)

    def write(self, folder: Path, say: Say) -> None:
        self._compared = write_generation(self.source, folder, say, self._read, self.precisions)

    def measure(self, folder: Path, say: Say) -> tuple[Report, Report]:
        """Check fp32 token by token, measure the other precisions and, with texts, perplexity."""
        say("comparing the bundle with PyTorch, token by token")
        bundle = open_bundle(folder)
        longest = min(NEW_TOKENS, self.source.model.config.max_positions // 2)
        parity, texts = {}, self._compared or self._prompts
        if "fp32" in self.precisions:
            parity["fp32"], found = check_generation(self.source, bundle, self._prompts, longest)
            texts = self._compared or found
            free_memory(self.source.model)
        say("scoring texts in all precisions")
        scores = {p: score(bundle, p, texts) for p in bundle.manifest.precisions if self._read or p != "fp32"}
        others = {precision: found for precision, found in scores.items() if precision != "fp32"}
        with check_activations(self.source.model) if FP16 in others else nullcontext():
            parity |= compare_generation(self.source, texts, others)
        metrics = dict(self.provenance.get("metrics", {}))
        if self.kept:
            metrics |= speeds(bundle, self.kept, self._prompts, longest)
            for report in (parity[precision] for precision in others):
                report |= {"samples": len(texts), "distinct_outputs": len(set(map(tuple, texts)))}
        if self._read:
            metrics |= {f"perplexity_{name.replace('-', '_')}": round(perplexity(found), 3) for name, found in scores.items()}
        return parity, metrics

    @property
    def _prompts(self) -> list[list[int]]:
        """Return parts of the texts, of ragged lengths, or random tokens."""
        texts, longest = self._read, self.source.model.config.max_positions // 2
        count = count_samples(self.source) if texts else 0
        starts = [(index // len(texts) * LONGEST, texts[index % len(texts)]) for index in range(count)]
        cut = [text[start % len(text) :][: min(1 + index % LONGEST, longest)] for index, (start, text) in enumerate(starts)]
        return cut or self._random

    @cached_property
    def _random(self) -> list[list[int]]:
        return draw_prompts(self.source, count_samples(self.source))

    @cached_property
    def _read(self) -> list[list[int]]:
        """Return the beginnings of the texts, in tokens."""
        if self.source.tokenizer is None:
            return []
        longest = min(READ, self.source.model.config.max_positions)
        texts = [text[: longest * MOST_CHARACTERS] for text in spread(self.texts, max(TEXTS, count_samples(self.source)))]
        found = [encoding.ids[:longest] for encoding in self.source.tokenizer.encode_batch(texts)]
        return [ids for ids in found if len(ids) > 1]


def write_generation(
    source: GenerationSource, folder: Path, say: Say, samples: Sequence[list[int]], precisions: Sequence[str]
) -> Sequence[list[int]]:
    """Write graphs, tokenizer or colours, chat template and a first manifest; int8 and int4 are calibrated with `samples`.

    Returns the samples to compare precisions with; if there are enough, they are others than those of the calibration. If none
    are given, but precisions to compare with fp32, they are texts that the model writes: random tokens would be further from
    what it will read (Liu et al. 2023, LLM-QAT).
    """
    folder.mkdir()
    if source.tokenizer is not None:
        write_tokenizer(source.tokenizer, folder / "tokenizer.json")
    if source.template:
        (folder / TEMPLATE).write_text(source.template, encoding="utf-8")
    if source.colours is not None:
        np.save(folder / COLOURS, source.colours)
    banned = tuple(sorted(single_tokens(source.generation.get("suppressed_tokens", ()))))
    settings = GraphSettings(suppressed=banned, edits_last=True, renormalizes=bool(source.generation.get("renormalize", False)))
    # One trace gives all graphs but float16 and those of calibrated models: int8, and int4 if its weights had more than 4 bits.
    traced = [each for each in precisions if each not in WITH_INT8_CACHES.values()]
    own = {INT8, FP16}
    if INT4 in traced and isinstance(source.model, Gpt) and any(blocked_linears(source.model)):
        own.add(INT4)
    groups = [[each for each in traced if each not in own], *([each] for each in traced if each in own)]
    for alike in filter(None, groups):
        model = source.model
        if alike[0] in own - {FP16} and not isinstance(model, OnnxGpt):
            given = [(torch.tensor([ids]),) for ids in _halves(samples)[0]]
            say(f"calibrating {alike[0]} with {len(given)} texts")
            model = calibrate(model, given, WEIGHT_BITS) if alike == [INT8] else calibrate_blocks(model, given)
        say(f"tracing the graphs of {', '.join(alike)}")
        prepared = model if isinstance(model, OnnxGpt) else fuse_norms(fold_gpt(model))
        weights = {precision: WeightsFile(folder / f"weights.{precision}.bin") for precision in alike}
        for kind in GENERATION_GRAPHS:
            graph = trace_generation(kind, prepared, settings, alike == [FP16])
            for precision, file in weights.items():
                converted = "fp32" if isinstance(model, OnnxGpt) else precision
                write_graph(graph, path := folder / f"{kind}.{precision}.onnx", file, converted)
                if (cached := WITH_INT8_CACHES.get(precision)) in precisions:
                    write_int8_caches(path, folder / f"{kind}.{cached}.onnx")
            del graph
        free_memory(source.model, model, prepared)
        if not samples and "fp32" in alike and len(precisions) > 1:
            say("sampling texts from the model, since none were given")
            write_manifest(folder, generation_manifest(source, ["fp32"]))
            samples = draw_texts(source, open_bundle(folder), count_samples(source))
    write_manifest(folder, generation_manifest(source, precisions))
    return _halves(samples)[1]


def _halves(samples: Sequence[list[int]]) -> tuple[Sequence[list[int]], Sequence[list[int]]]:
    """Part texts for calibration and comparison; if there are few, both read all."""
    return (samples[::2], samples[1::2]) if len(samples) >= 2 * FEWEST_PROMPTS else (samples, samples)


def count_samples(source: GenerationSource) -> int:
    """Return the number of prompts or texts to compare; fewer for a large model."""
    size = sum(parameter.numel() for parameter in source.model.parameters()) or 1
    return max(FEWEST_PROMPTS, min(MOST_PROMPTS, WORK // size))


def generation_manifest(source: GenerationSource, precisions: Sequence[str] = PRECISIONS) -> dict[str, Any]:
    """Compose the manifest."""
    config, image = source.model.config, source.image
    task, most, generation = TEXT_GENERATION, config.max_positions, dict(source.generation)
    members: dict[str, Any] = {"chat": {"template": TEMPLATE, "variables": dict(source.variables)}} if source.template else {}
    if source.languages:
        task, members["languages"] = TRANSLATION, dict(source.languages)
    if image is not None:
        size: dict[str, Any] = {"height": image.height, "width": image.width, "interpolation": image.interpolation}
        task, members["colours"] = IMAGE_GENERATION, {"file": COLOURS, **size}
        generation["max_length"] = image.height * image.width
        most = image.height * image.width + 1  # the start, and pixels of which the last is not read
    length = min(max(DEFAULT_LENGTH, generation.get("min_length", 0)), most)
    return first_manifest(
        task,
        source.family,
        {p: graphs_member(tuple(GENERATION_GRAPHS), p, kept=isinstance(source.model, OnnxGpt)) for p in precisions},
        vocabulary_size=config.output_count,
        tokens={"pad": source.pad, "ends": list(source.ends), **({} if source.start is None else {"start": source.start})},
        limits={"max_context": most},
        decoder={
            "layers": sum(cache_layers(source.model)),
            "heads": config.kv_heads or config.heads,
            "head_dim": cache_head_dim(source.model),
        },
        generation={"max_length": length, "rules": "transformers", **generation},
        **members,
    )
