"""The manifest of a translation model."""

from collections.abc import Mapping
from dataclasses import dataclass

from triptych_serving.bundle.fields import Fields
from triptych_serving.bundle.languages import is_language
from triptych_serving.bundle.manifest.base import Manifest, check_common, parse_common
from triptych_serving.bundle.manifest.frames import Frames, check_frames, check_room, parse_frames
from triptych_serving.bundle.manifest.generation import Generation, parse_generation

TRANSLATION = "translation"
TOKENIZER_FILE = "tokenizer.json"
SHORT = ("shortlist", "short_step", "short_search", "projection")


@dataclass(frozen=True)
class SpecialTokens:
    """Ids; `start` may be one of the others."""

    pad: int
    start: int
    end: int


@dataclass(frozen=True)
class Limits:
    """Lengths in tokens, the end of the sentence included."""

    max_source_tokens: int
    max_target_tokens: int


@dataclass(frozen=True)
class DecoderShape:
    """What the caches are allocated from."""

    layers: int
    heads: int
    head_dim: int


@dataclass(frozen=True)
class TranslationGraphs:
    """File names of one precision's graphs."""

    encoder: str
    step: str
    search: str = ""  # empty in old bundles, which decode greedily only
    score: str = ""  # empty in old bundles
    saturation_free: bool = False  # integer weights of 7 bits: no product overflows, whatever the processor
    shortlist: str = ""  # which tokens a source may need; with it go the three that follow, or none of them
    short_step: str = ""
    short_search: str = ""
    projection: str = ""  # what the short graphs' columns are taken from

    @property
    def files(self) -> tuple[str, ...]:
        names = (self.encoder, self.step, self.search, self.score, self.shortlist, self.short_step, self.short_search)
        return tuple(name for name in (*names, self.projection) if name)


@dataclass(frozen=True)
class TranslationManifest(Manifest):
    """Beside the common members:

    source_languages      BCP 47 or FLORES-200 codes; "und": any, or none
    target_languages      the same
    tokens                pad, start (first decoder input), end: ids
    limits                max_source_tokens, max_target_tokens: end of sentence included
    decoder               layers, heads, head_dim: the shape of the caches
    generation            defaults of decoding: max_length (tokens, end of sentence not included); optional: see Generation
    frames                (optional) what stands around the texts of each language: see Frames
    splits                (optional) texts are split into sentences unless a request says otherwise; true by default
    target_tokenizer      (optional) file name, where target texts have a tokenizer of their own
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
    target_tokenizer: str  # empty: that of the sources

    @property
    def tokenizers(self) -> tuple[str, str]:
        """File names, for sources and targets."""
        return TOKENIZER_FILE, self.target_tokenizer or TOKENIZER_FILE


def parse_translation(fields: Fields, faults: list[str]) -> TranslationManifest:
    """Read and check it; what is wrong goes to `faults`."""
    tokens, limits, decoder, generation = (fields.object(n) for n in ("tokens", "limits", "decoder", "generation"))
    manifest = TranslationManifest(
        **parse_common(fields),
        precisions={
            name: TranslationGraphs(
                graphs.get("encoder", str),
                graphs.get("step", str),
                graphs.get("search", str, ""),
                graphs.get("score", str, ""),
                graphs.get("saturation_free", bool, False),
                *(graphs.get(name, str, "") for name in SHORT),
            )
            for name, graphs in fields.objects("precisions").items()
        },
        source_languages=fields.strings("source_languages"),
        target_languages=fields.strings("target_languages"),
        tokens=SpecialTokens(tokens.natural("pad"), tokens.natural("start"), tokens.natural("end")),
        limits=Limits(limits.positive("max_source_tokens"), limits.positive("max_target_tokens")),
        decoder=DecoderShape(decoder.positive("layers"), decoder.positive("heads"), decoder.positive("head_dim")),
        generation=parse_generation(generation),
        frames=parse_frames(fields),
        splits=fields.get("splits", bool, True),
        target_tokenizer=fields.get("target_tokenizer", str, ""),
    )
    check_common(manifest, set(manifest.tokenizers), faults)
    _check(manifest, faults)
    return manifest


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
