"""Encoder-decoder checkpoints as translation bundles."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sacrebleu.metrics.bleu import BLEU

from triptych_export.bundle_files import PRECISIONS, STABLE_PRECISION, graphs_member, write_graph, write_manifest
from triptych_export.card import Description
from triptych_export.errors import SourceError
from triptych_export.family import Report, Say
from triptych_export.graphs import fold_scales
from triptych_export.parity import agreement, check_parity, decode, make_sample
from triptych_export.samples import spread
from triptych_export.shortlist import (
    SHORT_FILES,
    SHORT_PRECISION,
    coverage,
    learn_shortlist,
    write_short_graphs,
    write_shortlist,
)
from triptych_export.tracing import trace_encoder, trace_score, trace_search, trace_step
from triptych_export.weights import WeightsFile
from triptych_serving.bundle import open_bundle
from triptych_serving.manifest import FORMAT, TRANSLATION
from triptych_serving.shortlist import read_shortlist
from triptych_training.checkpoint import ARCHITECTURE, Checkpoint, load_checkpoint
from triptych_training.corpus import Pair, read_pairs

KINDS = ("encoder", "step", "search", "score")
PARITY_SENTENCES = 300
HEAD_MULTIPLE = 8  # of GroupQueryAttention
QUALITY_SLOTS = 16


class TranslationFamily:
    """A translation checkpoint.

    Args:
        folder: what a training wrote.
        valid: files of sentence pairs for parity and BLEU; empty: the sample in the folder.
        lexicon: files of sentence pairs that a shortlist is learnt from; empty: there is none.
        stable: write int8-stable too.

    Raises:
        SourceError: the runtime's operators cannot take the shape, or there are no sentences.
        TrainingError: checkpoint or sentences cannot be read.
    """

    def __init__(self, folder: Path, valid: Sequence[str], lexicon: Sequence[str] = (), stable: bool = False) -> None:
        self.checkpoint = load_checkpoint(folder)
        _check_shape(self.checkpoint)
        self.pairs = _pairs(folder, self.checkpoint, valid)
        self.lexicon_pairs = read_pairs(lexicon)
        self.precisions = (*PRECISIONS, STABLE_PRECISION) if stable else PRECISIONS

    @property
    def default_name(self) -> str:
        return f"{self.checkpoint.source_language}-{self.checkpoint.target_language}"

    @property
    def provenance(self) -> Mapping[str, Any]:
        return self.checkpoint.provenance

    def describe(self) -> Description:
        config = self.checkpoint.model.config
        shape = f"{config.decoder_layers}, {config.heads}, {config.model_dim // config.heads}"
        rows = {
            "decoder layers, heads, head size": shape,
            "longest source, target (tokens)": f"{config.max_positions}, {config.max_positions}",
        }
        return Description(f"Translates {self.checkpoint.source_language} to {self.checkpoint.target_language}.", rows)

    def write(self, folder: Path, say: Say) -> None:
        write_translation(self.checkpoint, folder, say, self.lexicon_pairs, self.precisions)

    def measure(self, folder: Path, say: Say) -> tuple[Report, Report]:
        return _measure(self.checkpoint, folder, self.pairs, say)


def write_translation(
    checkpoint: Checkpoint,
    folder: Path,
    say: Say,
    lexicon_pairs: Sequence[Pair] = (),
    precisions: Sequence[str] = PRECISIONS,
) -> None:
    """Graphs in some precisions, tokenizer and a first manifest; with a shortlist where there are pairs to learn it from."""
    folder.mkdir()
    folded = fold_scales(checkpoint.model)
    say("tracing the graphs")
    graphs = {
        "encoder": trace_encoder(folded),
        "step": trace_step(folded),
        "search": trace_search(folded),
        "score": trace_score(checkpoint.model),
    }
    weights = {precision: WeightsFile(folder / f"weights.{precision}.bin") for precision in precisions}
    for precision, file in weights.items():
        for kind, graph in graphs.items():
            write_graph(graph, folder / f"{kind}.{precision}.onnx", file, precision)
    if lexicon_pairs:
        write_short_graphs(folded, folder, weights["int8"])
        say(f"learning the shortlist from {len(lexicon_pairs):,} pairs")
        write_shortlist(learn_shortlist(checkpoint, lexicon_pairs), folder / SHORT_FILES["shortlist"])
    checkpoint.tokenizer.save(str(folder / "tokenizer.json"))
    write_manifest(folder, translation_manifest(checkpoint, precisions, shortlist=bool(lexicon_pairs)))


def translation_manifest(
    checkpoint: Checkpoint, precisions: Sequence[str] = PRECISIONS, shortlist: bool = False
) -> dict[str, Any]:
    """All that the checkpoint says."""
    graphs = {p: graphs_member(KINDS, p) for p in precisions}
    if shortlist:
        graphs[SHORT_PRECISION] = {**graphs_member(KINDS, "int8"), **SHORT_FILES}
    config = checkpoint.model.config
    return {
        "format": FORMAT,
        "task": TRANSLATION,
        "family": ARCHITECTURE,
        "source_languages": [checkpoint.source_language],
        "target_languages": [checkpoint.target_language],
        "tokens": {"pad": config.pad_id, "start": config.bos_id, "end": config.eos_id},
        "limits": {"max_source_tokens": config.max_positions, "max_target_tokens": config.max_positions},
        "decoder": {
            "layers": config.decoder_layers,
            "heads": config.heads,
            "head_dim": config.model_dim // config.heads,
        },
        "precisions": graphs,
        "default_precision": "fp32",
        "generation": {"max_length": config.max_positions - 1},
        "provenance": {},
        "metrics": {},
        "parity": {},
    }


def _check_shape(checkpoint: Checkpoint) -> None:
    config = checkpoint.model.config
    size = config.model_dim // config.heads
    if size % HEAD_MULTIPLE:
        raise SourceError(
            f"model_dim {config.model_dim} with {config.heads} heads: a head has {size} dimensions; "
            f"ONNX Runtime's attention takes multiples of {HEAD_MULTIPLE}"
        )


def _pairs(folder: Path, checkpoint: Checkpoint, valid: Sequence[str]) -> list[Pair]:
    pairs = read_pairs(valid) if valid else list(checkpoint.samples)
    if not pairs:
        raise SourceError(f"{folder}: holds no sentences for the parity check; name a file of pairs with --valid")
    return pairs


def _measure(checkpoint: Checkpoint, folder: Path, pairs: Sequence[Pair], say: Say) -> tuple[Report, Report]:
    """Parity of fp32, agreement of the other precisions, BLEU of all."""
    config = checkpoint.model.config
    encodings = checkpoint.tokenizer.encode_batch([source for source, _ in pairs])
    sources = [encoding.ids for encoding in encodings if len(encoding.ids) <= config.max_positions]
    references = [t for (_, t), e in zip(pairs, encodings, strict=True) if len(e.ids) <= config.max_positions]
    say("decoding in PyTorch")
    sample = make_sample(checkpoint.model, spread(sources, PARITY_SENTENCES), config.max_positions - 1)
    say("comparing the bundle with PyTorch, token by token")
    parity: Report = {"fp32": check_parity(folder, "fp32", sample)}
    bundle = open_bundle(folder)
    for precision in [p for p in bundle.manifest.precisions if p != "fp32"]:
        outputs = decode(bundle, precision, sample.sources, sample.max_length, QUALITY_SLOTS)
        parity[precision] = agreement(sample.expected, outputs)
    say("measuring BLEU")
    metrics: Report = {"validation_pairs": len(sources)}
    scorer = BLEU()
    for precision in bundle.manifest.precisions:
        outputs = decode(bundle, precision, sources, config.max_positions - 1, QUALITY_SLOTS)
        texts = checkpoint.tokenizer.decode_batch(outputs)
        metrics[f"bleu_{precision.replace('-', '_')}"] = round(scorer.corpus_score(texts, [references]).score, 2)
    metrics["sacrebleu_signature"] = str(scorer.get_signature())
    if SHORT_PRECISION in bundle.manifest.precisions:
        shortlist = read_shortlist(bundle.path(SHORT_FILES["shortlist"]), config.vocabulary_size)
        metrics |= coverage(shortlist, sample.sources, sample.expected)
    return parity, metrics
