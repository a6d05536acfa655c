"""Export of encoder-decoder models."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from triptych_export.bundle_files import (
    ATTEND,
    FP32,
    PRECISIONS,
    SHORT_PRECISION,
    WEIGHT_BITS,
    first_manifest,
    graphs_member,
    write_graph,
    write_manifest,
    write_tokenizer,
    written_precisions,
)
from triptych_export.card import Description
from triptych_export.families.alignment import AlignmentChoice, choose_alignment
from triptych_export.families.family import Report, Say, free_memory
from triptych_export.families.shortlist import (
    SHORT_FILES,
    check_shortlist,
    coverage,
    learn_shortlist,
    write_short_graphs,
    write_shortlist,
)
from triptych_export.graphs.attention import write_attention_graph
from triptych_export.graphs.float16 import check_activations
from triptych_export.graphs.tracing import trace_translation
from triptych_export.graphs.translation import GraphSettings
from triptych_export.graphs.weight_folding import decoder_shape, fold_cache_scales, fold_scales, fuse_norms
from triptych_export.onnx_files.decoder import OnnxSeq2Seq
from triptych_export.parity.comparison import affordable, spread
from triptych_export.parity.sentences import FramedPair, draw_sentences
from triptych_export.parity.translation import (
    ParitySample,
    agreement,
    check_parity,
    decode,
    forced_agreement,
    make_framed_sample,
    make_sample,
    speeds,
    teacher_force,
    translate_framed,
)
from triptych_export.quantization.calibration import calibrate
from triptych_export.quantization.weights_file import WeightsFile
from triptych_export.translation_source import TranslationSource
from triptych_serving.bundle.bundle import Bundle, open_bundle
from triptych_serving.bundle.manifest import FP16, INT8, INT8_CACHES, TRANSLATION, SourceFrame, TargetFrame, TranslationManifest
from triptych_serving.decoding.logits_processor import single_tokens
from triptych_serving.decoding.shortlist import read_shortlist
from triptych_text.languages import UNDETERMINED
from triptych_text.translation_scores import score_translations
from triptych_training.checkpoints.translation import CONFIGS
from triptych_training.data.corpus import Pair
from triptych_training.models.rnn import Rnn, RnnConfig, make_translation_model

CACHE_KINDS = ("encoder", "step", "search")
KINDS = (*CACHE_KINDS, "score")
TARGET_TOKENIZER = "target_tokenizer.json"
PARITY_SENTENCES = 300
RANDOM_SENTENCES, FEWEST_SENTENCES = 200, 32  # for small and for large models without sentences
RANDOM_LENGTH = 64  # tokens of their translations
RANDOM_WORK = 20_000_000_000  # parameters times sentences: some minutes
QUALITY_SLOTS = 16
RANGE_SENTENCES = 100  # sentences in which activations are checked


class TranslationFamily:
    """A translation model, trained here or elsewhere.

    `pairs`, in the model's first languages, are for parity and BLEU; without them sentences are drawn, and there is no BLEU.
    From `lexicon_pairs` a lexicon is learnt, for a shortlist and the choice of alignment heads. `shipped` are the precisions
    that the bundle will have; `untrained` accepts a model whose translations hardly differ.

    Raises:
        SourceError: the model does not support a shortlist.
    """

    def __init__(
        self,
        source: TranslationSource,
        pairs: Sequence[Pair] = (),
        lexicon_pairs: Sequence[Pair] = (),
        shipped: Sequence[str] = PRECISIONS,
        untrained: bool = False,
    ) -> None:
        self.source, self.provenance = source, source.provenance
        self.untrained = untrained
        self.pairs = pairs
        self.lexicon_pairs = lexicon_pairs
        self._alignment: AlignmentChoice | None = None  # made when the graphs are written
        self.languages = FramedPair.first(source)
        self.kept = source.model if isinstance(source.model, OnnxSeq2Seq) else None
        self.default_precisions = (self.kept.precision,) if self.kept else shipped
        self.precisions = self.default_precisions if self.kept else written_precisions(shipped)
        if lexicon_pairs:
            check_shortlist(source)

    @property
    def default_name(self) -> str:
        if len(self.source.sources) > 1 or len(self.source.targets) > 1 or UNDETERMINED in self.source.targets:
            return self.source.family
        return f"{self.languages.source}-{self.languages.target}"

    def describe(self) -> Description:
        config = self.source.model.config
        if isinstance(config, RnnConfig):
            shape = {"decoder cells, layers, attention": f"{config.cell}, {config.decoder_layers}, {config.attention}"}
        else:
            sizes = config.decoder_layers, config.decoder_block.heads, config.decoder_block.attention.head_dim
            shape = {"decoder layers, heads, head size": ", ".join(map(str, sizes))}
        rows = {**shape, "longest source, target (tokens)": f"{self.source.max_source}, {self.source.max_target}"}
        return Description(_sentence(self.source), rows)

    def write(self, folder: Path, say: Say) -> None:
        say("decoding in PyTorch")
        # Before the graphs, whatever the precisions: there may be too few sentences for the parity check.
        sample = self._calibration() if "int8" in self.precisions and not self.kept else self._sample
        short = SHORT_PRECISION in self.default_precisions
        self._alignment = write_translation(self.source, folder, say, sample, self.lexicon_pairs, self.precisions, short)

    def measure(self, folder: Path, say: Say) -> tuple[Report, Report]:
        """Check fp32 parity, measure agreement of the other precisions, and BLEU of all if there are references.

        fp16 is also compared with teacher forcing. The model's weights are freed first, to make room for the bundle's.
        """
        sources, references = self._known_pairs
        sample = self._sample
        if FP16 in self.precisions:
            say("checking that activations fit into float16")
            self._check_range(sample)
        self._release()
        say("comparing the bundle with PyTorch, token by token")
        override = {"allow_untrained": True} if self.untrained else {}
        parity: Report = {}
        if FP32 in self.precisions:
            parity[FP32] = {**check_parity(folder, FP32, sample), **override}
        bundle, metrics = open_bundle(folder), Report()
        for precision in [p for p in bundle.manifest.precisions if p != FP32]:
            outputs = decode(
                bundle, precision, sample.sources, sample.max_length, affordable(bundle, QUALITY_SLOTS), sample.prefixes
            )
            parity[precision] = agreement(sample.expected, outputs)
            if self.kept:
                parity[precision] |= {"sentences": len(outputs), "distinct_outputs": len(set(map(tuple, outputs)))}
            if precision == FP16:
                found = teacher_force(bundle, precision, affordable(bundle, QUALITY_SLOTS), sample.sources, sample.expected)
                parity[precision] |= forced_agreement(found, sample, bundle.manifest_of(TranslationManifest).tokens.end)
        if self.kept:
            metrics = speeds(bundle, self.kept.precision, sample)
        if references:
            say("measuring BLEU")
            metrics |= self._quality(bundle, sources, references)
        if SHORT_PRECISION in bundle.manifest.precisions:
            shortlist = read_shortlist(bundle.path(SHORT_FILES["shortlist"]), self.source.model.config.vocabulary_size)
            metrics |= coverage(shortlist, sample.sources, sample.expected)
        if self._alignment is not None:
            metrics |= self._alignment.metrics
        return parity, metrics

    @torch.inference_mode()
    def _check_range(self, sample: ParitySample) -> None:
        """Check that activations fit into float16; raises RangeError."""
        model = self.source.model
        with check_activations(model):
            for source, answer in spread(list(zip(sample.sources, sample.expected, strict=True)), RANGE_SENTENCES):
                model(torch.tensor([source]), torch.tensor([[model.config.bos_id, *answer]]))

    def _release(self) -> None:
        """Free the weights, and leave a model that only has their shapes."""
        if isinstance(self.source.model, OnnxSeq2Seq):
            return
        with torch.device("meta"):
            shapes = make_translation_model(self.source.model.config)
        free_memory(shapes, self.source.model)
        self.source = replace(self.source, model=shapes)

    @cached_property
    def _known_pairs(self) -> tuple[list[list[int]], list[str]]:
        """Return framed sources that fit the model, and their references."""
        encoded = self.languages.encode(self.source.tokenizer, [source for source, _ in self.pairs])
        fitting = [
            (ids, target) for ids, (_, target) in zip(encoded, self.pairs, strict=True) if len(ids) <= self.source.max_source
        ]
        return [ids for ids, _ in fitting], [target for _, target in fitting]

    @cached_property
    def _sample(self) -> ParitySample:
        """PyTorch's translations of sentences that are given or, for a model trained elsewhere, drawn at random."""
        (sources, _), model, longest = self._known_pairs, self.source.model, self.source.max_target - 1
        if self.source.family in CONFIGS:
            assert not isinstance(model, OnnxSeq2Seq)
            return make_sample(model, spread(sources, PARITY_SENTENCES), longest, self.untrained)
        if sources:
            chosen = spread(sources, self._random_sentences)
            prefixes = [self.languages.framing.forced] * len(chosen)
        else:
            chosen, prefixes = draw_sentences(self.source, self._random_sentences)
        suppressed = suppressed_tokens(self.source)
        return make_framed_sample(model, chosen, prefixes, min(RANDOM_LENGTH, longest), suppressed, self.untrained)

    @property
    def _random_sentences(self) -> int:
        """Number of sentences to draw or to choose for a model trained elsewhere: fewer for a large model."""
        size = self.kept.file.bytes // 4 if self.kept else sum(p.numel() for p in self.source.model.parameters())
        return max(FEWEST_SENTENCES, min(RANDOM_SENTENCES, RANDOM_WORK // size))

    def _calibration(self) -> ParitySample:
        """Return the sentences that calibrate int8: those of the parity check, and random tokens for other texts."""
        sample = self._sample
        if not self.pairs:
            return sample
        sources, prefixes = draw_sentences(self.source, self._random_sentences)
        longest = min(RANDOM_LENGTH, self.source.max_target - 1)
        answers = translate_framed(self.source.model, sources, prefixes, longest, suppressed_tokens(self.source))
        return ParitySample([*sample.sources, *sources], [*sample.expected, *answers], sample.max_length)

    def _quality(self, bundle: Bundle, sources: Sequence[list[int]], references: Sequence[str]) -> Report:
        metrics: Report = {"validation_pairs": len(sources)}
        language, tokenizer = next(iter(self.source.targets)), self.source.target_tokenizer or self.source.tokenizer
        forced, longest = self.languages.framing.forced, self.source.max_target - 1
        for precision in bundle.manifest.precisions:
            outputs = decode(bundle, precision, sources, longest, affordable(bundle, QUALITY_SLOTS), [forced] * len(sources))
            texts = tokenizer.decode_batch([output[len(forced) :] for output in outputs])
            scores, name = score_translations(texts, references, language), precision.replace("-", "_")
            metrics |= {f"bleu_{name}": round(scores.bleu, 2), f"chrf_{name}": round(scores.chrf, 2)}
            metrics["sacrebleu_signature"] = scores.signature
        return metrics


def write_translation(
    source: TranslationSource,
    folder: Path,
    say: Say,
    sample: ParitySample | None = None,
    lexicon_pairs: Sequence[Pair] = (),
    precisions: Sequence[str] = PRECISIONS,
    short: bool = True,
) -> AlignmentChoice | None:
    """Write graphs in the given precisions, tokenizers and a first manifest.

    int8 is calibrated with `sample` and needs one. `lexicon_pairs`, if there are any, decide which heads of attention are the
    alignment; returns that choice. With `short`, they also give a shortlist.
    """
    folder.mkdir()
    settings, choice, short = _settings(source), None, short and bool(lexicon_pairs)
    if lexicon_pairs:
        say(f"learning a lexicon from {len(lexicon_pairs):,} pairs")
        lexicon = learn_shortlist(source, lexicon_pairs)
        say("choosing the heads of the alignment")
        choice = choose_alignment(source, lexicon, lexicon_pairs)
        settings = replace(settings, alignment=None if choice is None else choice.heads)
    for precision in [each for each in precisions if each != INT8_CACHES]:
        weights, traced = WeightsFile(folder / f"weights.{precision}.bin"), source
        if precision == INT8 and not isinstance(source.model, OnnxSeq2Seq):
            assert sample is not None
            say(f"calibrating int8 with {len(sample.sources)} sentences")
            start, pairs = source.model.config.bos_id, zip(sample.sources, sample.expected, strict=True)
            read = [(torch.tensor([framed]), torch.tensor([[start, *answer]])) for framed, answer in pairs]
            traced = replace(source, model=calibrate(source.model, read, WEIGHT_BITS))
        for each in [each for each in precisions if each == precision or (precision, each) == (INT8, INT8_CACHES)]:
            say(f"tracing the graphs of {each}")
            _write_graphs(traced, settings, folder, each, weights)
        if short and precision == INT8:
            write_short_graphs(traced, settings, folder, weights)
        free_memory(source.model, traced.model)
    if short:
        write_shortlist(lexicon, folder / SHORT_FILES["shortlist"])
    write_tokenizer(source.tokenizer, folder / "tokenizer.json")
    if source.target_tokenizer is not None:
        write_tokenizer(source.target_tokenizer, folder / TARGET_TOKENIZER)
    write_manifest(folder, translation_manifest(source, precisions, short, choice))
    return choice


def translation_manifest(
    source: TranslationSource,
    precisions: Sequence[str] = PRECISIONS,
    shortlist: bool = False,
    alignment: AlignmentChoice | None = None,
) -> dict[str, Any]:
    """Compose the manifest."""
    kinds = CACHE_KINDS if isinstance(source.model, Rnn | OnnxSeq2Seq) else (*KINDS, ATTEND)
    graphs = {p: graphs_member(kinds, p, kept=isinstance(source.model, OnnxSeq2Seq)) for p in precisions}
    if INT8_CACHES in graphs:  # the other graphs have no caches
        graphs[INT8_CACHES] |= {kind: graphs[INT8][kind] for kind in (*KINDS, ATTEND) if kind not in CACHE_KINDS}
    if shortlist:
        graphs[SHORT_PRECISION] = {**graphs["int8"], **SHORT_FILES}
    config = source.model.config
    return first_manifest(
        TRANSLATION,
        source.family,
        graphs,
        source_languages=list(source.sources),
        target_languages=list(source.targets),
        **_optional(source),
        tokens={"pad": config.pad_id, "start": config.bos_id, "end": config.eos_id},
        limits={"max_source_tokens": source.max_source, "max_target_tokens": source.max_target},
        decoder={name: value for name, value in asdict(decoder_shape(source.model)).items() if value},
        generation={"max_length": source.max_target - 1, **source.generation},
        **({} if alignment is None else {"alignment": asdict(alignment.heads)}),
    )


def _write_graphs(
    source: TranslationSource, settings: GraphSettings, folder: Path, precision: str, weights: WeightsFile
) -> None:
    """Write every graph in a precision; no graph is kept while the next one is traced."""
    if isinstance(source.model, Rnn | OnnxSeq2Seq):
        written = FP32 if isinstance(source.model, OnnxSeq2Seq) else precision  # nothing is converted
        for kind in CACHE_KINDS:
            write_graph(trace_translation(kind, source.model, settings), folder / f"{kind}.{precision}.onnx", weights, written)
        return
    folded, plain = fold_scales(source.model), fuse_norms(source.model)
    kinds: Sequence[str] = KINDS
    if precision == INT8_CACHES:
        folded, settings, kinds = fold_cache_scales(folded), replace(settings, int8_caches=True), CACHE_KINDS
    folded, settings = fuse_norms(folded), replace(settings, joins_sources=precision in (INT8, INT8_CACHES))
    for kind in kinds:
        graph = trace_translation(kind, plain if kind == "score" else folded, settings, precision == FP16)
        # The graph of the attention is made of the score graph, and takes it apart operator by operator.
        write_graph(graph, folder / f"{kind}.{precision}.onnx", weights, precision, byte_norms=kind != "score")
        del graph
    if "score" in kinds:
        write_attention_graph(folder / f"score.{precision}.onnx", folder / f"{ATTEND}.{precision}.onnx")


def suppressed_tokens(source: TranslationSource) -> tuple[int, ...]:
    """Return the token ids that are never generated."""
    return tuple(sorted(single_tokens(source.generation.get("suppressed_tokens", ()))))


def _settings(source: TranslationSource) -> GraphSettings:
    edits_last = source.generation.get("rules") == "transformers"
    renormalizes = bool(source.generation.get("renormalize", False))
    return GraphSettings(source.max_source, source.max_target, suppressed_tokens(source), edits_last, renormalizes)


def _optional(source: TranslationSource) -> dict[str, Any]:
    """Collect manifest members that differ from the defaults."""
    sides: dict[str, Mapping[str, SourceFrame | TargetFrame]] = {"sources": source.sources, "targets": source.targets}
    frames = {
        side: _filled({code: _filled(asdict(frame)) for code, frame in by_code.items()}) for side, by_code in sides.items()
    }
    target_tokenizer = TARGET_TOKENIZER if source.target_tokenizer else ""
    members = {"frames": _filled(frames), "target_tokenizer": target_tokenizer, "lowers_capitals": source.lowers_capitals}
    return _filled(members) | ({} if source.splits else {"splits": False})


def _filled(values: Mapping[str, object]) -> dict[str, object]:
    """Drop empty members."""
    return {name: value for name, value in values.items() if value}


def _sentence(source: TranslationSource) -> str:
    sources, targets = list(source.sources), list(source.targets)
    if UNDETERMINED in targets:
        return "Turns texts into other texts."
    if len(sources) == len(targets) == 1:
        return f"Translates {sources[0]} to {targets[0]}."
    return f"Translates {_languages(sources)} to {_languages(targets)}."


def _languages(codes: Sequence[str]) -> str:
    return codes[0] if len(codes) == 1 else f"{len(codes)} languages"
