"""The manifest of a translation model."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import TypeVar

from triptych_serving.bundle.fields import JsonFields
from triptych_serving.bundle.manifest.base import Manifest, check_common, parse_common
from triptych_serving.bundle.manifest.frames import Frames, check_frames, check_room, parse_frames
from triptych_serving.bundle.search_params import BOUNDS, EarlyStopping, SearchDefaults, SearchRules, range_fault
from triptych_text.languages import is_language


@dataclass(frozen=True)
class Generation(SearchDefaults):
    """Defaults of decoding, with the wire's names and meanings, except that the lengths also count tokens forced by frames.

    All but max_length are optional.
    """

    max_length: int = field(kw_only=True)  # tokens, without the end of the sentence


GenerationT = TypeVar("GenerationT", bound=Generation)


def parse_generation(values: JsonFields, kind: type[GenerationT]) -> GenerationT:
    """Read and check the defaults; errors are added to the fields' faults."""
    numbers = [one for one in fields(kind) if one.name in BOUNDS and one.name != "max_length"]
    generation = kind(
        max_length=values.positive("max_length"),
        **{one.name: values.get(one.name, type(one.default), one.default) for one in numbers},
        rules=SearchRules(values.choice("rules", tuple(SearchRules), SearchRules.CTRANSLATE2)),
        early_stopping=EarlyStopping(values.choice("early_stopping", tuple(EarlyStopping), EarlyStopping.HEURISTIC)),
        forced_end=values.get("forced_end", bool, False),
        suppressed_tokens=values.id_lists("suppressed_tokens"),
    )
    for one in numbers:
        if problem := range_fault(one.name, getattr(generation, one.name)):
            values.faults.append(f"{values.path}.{one.name}: {problem}")
    _check_together(generation, values)
    return generation


def _check_together(generation: Generation, values: JsonFields) -> None:
    if generation.num_hypotheses > generation.beam_size:
        values.faults.append(
            f"{values.path}.num_hypotheses {generation.num_hypotheses} is above beam_size {generation.beam_size}"
        )
    if generation.min_length > max(1, generation.max_length):
        values.faults.append(f"{values.path}.min_length {generation.min_length} is above max_length {generation.max_length}")
    strange = "patience" if generation.rules is SearchRules.TRANSFORMERS else "early_stopping"
    if strange in values.values:
        values.faults.append(f"{values.path}.{strange} is not among the rules of {generation.rules}")


TRANSLATION = "translation"
TOKENIZER_FILE = "tokenizer.json"
MOST_LAYERS, MOST_HEADS = 10_000, 10_000  # each layer has arrays of its own
SHORT = ("shortlist", "short_step", "short_search", "projection")


@dataclass(frozen=True)
class SpecialTokens:
    """Ids of the special tokens; `start` may equal another one. -1: there is none."""

    pad: int
    start: int
    end: int
    other_ends: tuple[int, ...] = ()  # tokens that end a text as well

    @property
    def ends(self) -> frozenset[int]:
        """All tokens that end a text."""
        return frozenset(token for token in (self.end, *self.other_ends) if token >= 0)


@dataclass(frozen=True)
class Limits:
    """Lengths in tokens, including the end of the sentence."""

    max_source_tokens: int
    max_target_tokens: int


@dataclass(frozen=True)
class DecoderShape:
    """Dimensions of the caches."""

    layers: int
    heads: int
    head_dim: int
    state_vectors: int = 0  # length of the caches if they are a recurrent decoder's state; 0: a position a token


@dataclass(frozen=True)
class AlignmentHeads:
    """The cross-attention whose mean is the alignment that the search graph returns."""

    layer: int  # of the decoder, from 0
    heads: tuple[int, ...]


@dataclass(frozen=True)
class TranslationGraphs:
    """File names of one precision's graphs."""

    encoder: str
    step: str
    search: str = ""  # empty in old bundles, which decode greedily only
    score: str = ""  # empty in old bundles
    saturation_free: bool = False  # integer weights of 7 bits: no product overflows, whatever the processor
    shortlist: str = ""  # the tokens that a source may need; requires the three that follow
    short_step: str = ""
    short_search: str = ""
    projection: str = ""  # source of the short graphs' columns
    attend: str = ""  # empty in old bundles

    @property
    def files(self) -> tuple[str, ...]:
        names = (self.encoder, self.step, self.search, self.score, self.shortlist, self.short_step, self.short_search)
        return tuple(name for name in (*names, self.projection, self.attend) if name)


@dataclass(frozen=True)
class TranslationManifest(Manifest):
    """Manifest of a translation model. Members besides the common ones:

    source_languages      BCP 47 or FLORES-200 codes; "und": any, or none
    target_languages      the same
    tokens                pad, start (first decoder input), end: ids
    limits                max_source_tokens, max_target_tokens: end of sentence included
    decoder               layers, heads, head_dim: the shape of the caches; state_vectors (optional): their length in a
                          recurrent decoder, whose step replaces them as a whole
    generation            defaults of decoding: max_length (tokens, end of sentence not included); optional: see Generation
    frames                (optional) what stands around the texts of each language: see Frames
    splits                (optional) texts are split into sentences unless a request says otherwise; true by default
    lowers_capitals       (optional) the model gets sentences in capitals in lower case, and their translations are written in
                          capitals; false by default
    target_tokenizer      (optional) file name, where target texts have a tokenizer of their own
    alignment             (optional) layer, heads: the cross-attention that the search graph returns as alignment; by default
                          all heads of the last layer
    """

    precisions: Mapping[str, TranslationGraphs]
    source_languages: tuple[str, ...]
    target_languages: tuple[str, ...]
    tokens: SpecialTokens
    limits: Limits
    decoder: DecoderShape
    generation: Generation
    frames: Frames
    splits: bool
    lowers_capitals: bool
    target_tokenizer: str  # empty: that of the sources
    alignment: AlignmentHeads

    @property
    def tokenizers(self) -> tuple[str, str]:
        """File names of the tokenizers of sources and targets."""
        return TOKENIZER_FILE, self.target_tokenizer or TOKENIZER_FILE


def parse_translation(fields: JsonFields) -> TranslationManifest:
    """Read and check the manifest; errors are added to the fields' faults."""
    tokens, limits, decoder, generation = (fields.object(n) for n in ("tokens", "limits", "decoder", "generation"))
    shape = parse_shape(decoder, decoder.positive("state_vectors") if "state_vectors" in decoder.values else 0)
    manifest = TranslationManifest(
        **parse_common(fields),
        precisions=fields.records("precisions", TranslationGraphs),
        source_languages=fields.strings("source_languages"),
        target_languages=fields.strings("target_languages"),
        tokens=SpecialTokens(tokens.natural("pad"), tokens.natural("start"), tokens.natural("end")),
        limits=Limits(limits.positive("max_source_tokens"), limits.positive("max_target_tokens")),
        decoder=shape,
        generation=parse_generation(generation, Generation),
        frames=parse_frames(fields),
        splits=fields.get("splits", bool, True),
        lowers_capitals=fields.get("lowers_capitals", bool, False),
        target_tokenizer=fields.get("target_tokenizer", str, ""),
        alignment=_parse_alignment(fields, shape),
    )
    check_common(manifest, set(manifest.tokenizers), fields.faults)
    _check(manifest, fields.faults)
    return manifest


def parse_shape(decoder: JsonFields, state_vectors: int = 0) -> DecoderShape:
    """Read the shape of the caches."""
    layers, heads = decoder.positive("layers", MOST_LAYERS), decoder.positive("heads", MOST_HEADS)
    return DecoderShape(layers, heads, decoder.positive("head_dim"), state_vectors)


def _parse_alignment(fields: JsonFields, decoder: DecoderShape) -> AlignmentHeads:
    if "alignment" not in fields.values:
        return AlignmentHeads(decoder.layers - 1, tuple(range(decoder.heads)))
    alignment = fields.object("alignment")
    chosen = AlignmentHeads(alignment.natural("layer"), alignment.ids("heads"))
    if chosen.layer >= decoder.layers or not chosen.heads or max(chosen.heads) >= decoder.heads:
        fields.faults.append(f"alignment has no heads of the decoder's {decoder.layers} layers of {decoder.heads} heads")
    return chosen


def _check(manifest: TranslationManifest, faults: list[str]) -> None:
    if manifest.generation.max_length >= max(1, manifest.limits.max_target_tokens):
        faults.append(
            f"generation.max_length {manifest.generation.max_length} is not below limits.max_target_tokens "
            f"{manifest.limits.max_target_tokens}"
        )
    check_frames(manifest.frames, manifest.source_languages, manifest.target_languages, faults)
    end, limits = manifest.tokens.end, manifest.limits
    check_room(manifest.frames, end, limits.max_source_tokens, manifest.generation.max_length, faults)
    if (end,) in manifest.generation.suppressed_tokens:
        faults.append(f"generation.suppressed_tokens: {end} is the end of the sentence")
    for kind, codes in (("source", manifest.source_languages), ("target", manifest.target_languages)):
        if not codes and not any(f"{kind}_languages" in fault for fault in faults):
            faults.append(f"{kind}_languages is empty")
        faults.extend(f"{kind}_languages: {code!r} is not a language code" for code in codes if not is_language(code))
    for name, graphs in manifest.precisions.items():
        missing = [member for member in SHORT if not getattr(graphs, member)]
        if 0 < len(missing) < len(SHORT):
            faults.append(f"precisions.{name} has a part of a shortlist, but no {', '.join(missing)}")
