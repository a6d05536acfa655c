"""Precision int8-shortlist: int8 graphs whose output projection is limited to likely target tokens.

The tokens come from a lexicon (`triptych_training.data.lexicon`); `triptych_serving.decoding.shortlist` describes its file.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from triptych_export.bundle_files import WEIGHT_BITS, write_graph
from triptych_export.errors import SourceError
from triptych_export.graphs.tracing import trace_translation
from triptych_export.graphs.translation import NEVER, GraphSettings
from triptych_export.graphs.weight_folding import fold_scales, fuse_norms
from triptych_export.parity.comparison import chunks
from triptych_export.quantization.dynamic import LARGEST, quantize_columns
from triptych_export.quantization.weights_file import WeightsFile
from triptych_export.translation_source import TranslationSource
from triptych_serving.bundle.manifest import SourceFrame, TargetFrame
from triptych_serving.decoding.shortlist import Shortlist
from triptych_training.data.corpus import Pair
from triptych_training.data.lexicon import Lexicon, learn_lexicon
from triptych_training.models.transformer import Transformer

SHORT_FILES: Mapping[str, str] = {
    "shortlist": "shortlist.npz",
    "short_step": "short_step.int8.onnx",
    "short_search": "short_search.int8.onnx",
    "projection": "projection.npz",
}
ENCODED = 10_000  # pairs encoded at a time; encodings take a hundred times the memory of their ids
NARROW = 1 << 16  # smaller ids fit into 16 bits
Ids = list[int]


def check_shortlist(source: TranslationSource) -> None:
    """Check that a model supports a shortlist.

    Raises:
        SourceError: its sources have their own vocabulary or frames, which a list by source tokens does not cover.
    """
    if source.target_tokenizer is not None or source.model.config.source_vocabulary_size:
        raise SourceError("shortlist: source and target tokenizers differ; only models with a shared one are supported")
    framed = [code for code, frame in source.sources.items() if frame != SourceFrame()]
    framed += [code for code, frame in source.targets.items() if frame != TargetFrame()]
    if framed:
        raise SourceError(
            f"shortlist: texts of {', '.join(framed[:5])} have extra tokens; only models of one language pair are supported"
        )


def learn_shortlist(source: TranslationSource, pairs: Sequence[Pair]) -> Lexicon:
    """Learn a lexicon over the model's tokens; pairs that are too long for the model are left out, as in training.

    Raises:
        SourceError: no pair is short enough.
    """
    config = source.model.config
    longest = min(source.max_source, source.max_target)
    fitting: list[tuple[Ids, Ids]] = []
    for part in chunks(pairs, ENCODED):
        sides = (source.tokenizer.encode_batch([pair[side] for pair in part]) for side in (0, 1))
        known = [(first.ids, second.ids) for first, second in zip(*sides, strict=True)]
        fitting += [pair for pair in known if max(map(len, pair)) <= longest]
    if not fitting:
        raise SourceError(f"shortlist: none of {len(pairs):,} pairs has at most {longest} tokens on both sides")
    return learn_lexicon(fitting, config.vocabulary_size, needed=(config.eos_id,))


def write_shortlist(lexicon: Lexicon, path: Path) -> None:
    """Write `shortlist.npz`."""
    kind = np.uint16 if len(lexicon.offsets) - 1 <= NARROW else np.uint32
    np.savez_compressed(
        path,
        offsets=lexicon.offsets.astype(np.uint32),
        targets=lexicon.targets.astype(kind),
        always=lexicon.always.astype(kind),
    )


def write_short_graphs(source: TranslationSource, settings: GraphSettings, folder: Path, weights: WeightsFile) -> None:
    """Write the graphs whose output projection is an input, and that projection in int8, with which they share `weights`."""
    assert isinstance(source.model, Transformer)
    folded = fuse_norms(fold_scales(source.model))
    for kind in ("short_step", "short_search"):
        write_graph(trace_translation(kind, folded, settings), folder / SHORT_FILES[kind], weights, "int8")
    projection = folded.projection
    values, scales = quantize_columns(projection.weight.detach().numpy().T, LARGEST[WEIGHT_BITS])
    given = projection.bias
    biases = np.zeros(len(scales), np.float32) if given is None else given.detach().numpy().copy()
    biases[list(settings.suppressed)] = NEVER
    np.savez_compressed(folder / SHORT_FILES["projection"], weights=values.T, scales=scales, biases=biases)


def coverage(shortlist: Shortlist, sources: Sequence[Ids], outputs: Sequence[Ids]) -> dict[str, float]:
    """Measure the share of output tokens that the shortlists contain, and the mean length of the lists.

    Sources with unknown tokens use the whole vocabulary: they count as covered, and not for the mean length.
    """
    sizes, tokens, covered = [], 0, 0
    for source, output in zip(sources, outputs, strict=True):
        ids = shortlist.ids(source)
        tokens += len(output)
        covered += len(output) if ids is None else int(np.isin(output, ids).sum())
        sizes += [] if ids is None else [len(ids)]
    return {
        "shortlist_mean_tokens": round(float(np.mean(sizes)), 1) if sizes else 0.0,
        "shortlist_coverage_percent": round(100 * covered / max(1, tokens), 2),
    }
