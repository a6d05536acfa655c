"""The manifest of a decoder-only model, which continues texts, or the colours of an image."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from triptych_serving.bundle.fields import JsonFields
from triptych_serving.bundle.manifest.base import Manifest, check_common, parse_common
from triptych_serving.bundle.manifest.frames import Frames
from triptych_serving.bundle.manifest.image import INTERPOLATIONS
from triptych_serving.bundle.manifest.translation import TOKENIZER_FILE, DecoderShape, Generation, parse_generation, parse_shape
from triptych_text.languages import is_language

TEXT_GENERATION = "text-generation"
IMAGE_GENERATION = "image-generation"
LEAST_LANGUAGES = 2


@dataclass(frozen=True)
class GenerationDefaults(Generation):
    """Defaults of decoding; `max_length` counts new tokens, and penalties count those of the prompt too."""

    sampling_topk: int = 1  # 0: all tokens
    sampling_topp: float = 1.0
    sampling_minp: float = 0.0
    sampling_temperature: float = 1.0


@dataclass(frozen=True)
class GenerationTokens:
    """Ids of the special tokens."""

    pad: int  # fills up prompts of a batch; may be any token
    ends: tuple[int, ...]  # each ends a text, of which it is no part; empty: texts end at the limit
    start: int | None  # stands for an empty prompt; the tokenizer itself adds what prompts begin with


@dataclass(frozen=True)
class GenerationLimits:
    """Length in tokens of prompt and output together."""

    max_context: int


@dataclass(frozen=True)
class Chat:
    """Template that turns messages into a prompt (Jinja, as transformers uses it), and the texts of its special tokens."""

    template: str  # file name
    variables: Mapping[str, str]


@dataclass(frozen=True)
class Colours:
    """Colours that are the tokens of an image, in raster order: `file` is a NumPy array `[tokens, 3]`, float32 from -1 to 1."""

    file: str
    height: int
    width: int
    interpolation: str = "bilinear"  # of images that are scaled to this size

    @property
    def pixels(self) -> int:
        """Number of pixels of an image."""
        return self.height * self.width


@dataclass(frozen=True)
class GenerationGraphs:
    """File names of one precision's graphs."""

    step: str  # prompts too: a chunk of one row, or whole prompts of several
    search: str
    score: str
    saturation_free: bool = False  # integer weights of 7 bits: no product overflows, whatever the processor

    @property
    def files(self) -> tuple[str, ...]:
        return self.step, self.search, self.score


@dataclass(frozen=True)
class TextGenerationManifest(Manifest):
    """Manifest of a decoder-only model. Members besides the common ones:

    vocabulary_size       width of the logits
    tokens                pad, ends (ids that end a text), start (optional): see GenerationTokens
    limits                max_context: tokens of prompt and output together
    decoder               layers, heads, head_dim: the shape of the caches, `[rows, heads, positions, head_dim]`
    generation            defaults of decoding: max_length (new tokens); optional: see GenerationDefaults
    chat                  (optional) template (file name), variables (texts of special tokens): see Chat
    colours               image-generation: the tokens are colours of an image: file, height, width, interpolation (optional,
                          "bilinear"); tokens.start begins every image, none is in tokens.ends, and there is no tokenizer.json
    """

    precisions: Mapping[str, GenerationGraphs]
    vocabulary_size: int
    tokens: GenerationTokens
    limits: GenerationLimits
    decoder: DecoderShape
    generation: GenerationDefaults
    chat: Chat | None
    colours: Colours | None


@dataclass(frozen=True)
class PromptedTranslationManifest(TextGenerationManifest):
    """Manifest of a decoder-only model that is asked to translate, with task "translation". A further member:

    languages             code -> English name, such as {"de": "German"}, of what it translates from and to

    The chat template makes the prompt of a text, which is the only message; its variables `source_language` and
    `target_language` are the names, `source_code` and `target_code` the codes.
    """

    languages: Mapping[str, str]
    frames: ClassVar = Frames()
    splits: ClassVar = True

    @property
    def source_languages(self) -> tuple[str, ...]:
        """Codes of the languages."""
        return tuple(self.languages)

    @property
    def target_languages(self) -> tuple[str, ...]:
        """The same."""
        return tuple(self.languages)


def parse_prompted_translation(fields: JsonFields) -> PromptedTranslationManifest:
    """Read and check the manifest; errors are added to the fields' faults."""
    manifest = PromptedTranslationManifest(**vars(parse_text_generation(fields)), languages=fields.texts("languages"))
    faults = [f"languages: {code!r} is not a language code" for code in manifest.languages if not is_language(code)]
    if len(manifest.languages) < LEAST_LANGUAGES:
        faults.append("languages: has no pair to translate between")
    if manifest.chat is None:
        faults.append("chat: missing, it asks the model to translate")
    fields.faults.extend(faults)
    return manifest


def parse_text_generation(fields: JsonFields) -> TextGenerationManifest:
    """Read and check the manifest; errors are added to the fields' faults."""
    tokens, decoder, given = fields.object("tokens"), fields.object("decoder"), fields.values
    chat, colours = fields.object("chat", optional=True), fields.object("colours", optional=True)
    manifest = TextGenerationManifest(
        **parse_common(fields),
        precisions=fields.records("precisions", GenerationGraphs),
        vocabulary_size=fields.positive("vocabulary_size"),
        tokens=GenerationTokens(
            tokens.natural("pad"), tokens.ids("ends"), tokens.natural("start") if "start" in tokens.values else None
        ),
        limits=GenerationLimits(fields.object("limits").positive("max_context")),
        decoder=parse_shape(decoder),
        generation=parse_generation(fields.object("generation"), GenerationDefaults),
        chat=_parse_chat(chat) if "chat" in given else None,
        colours=_parse_colours(colours) if "colours" in given else None,
    )
    needed = {TOKENIZER_FILE} if manifest.colours is None else {manifest.colours.file}
    check_common(manifest, needed | ({manifest.chat.template} if manifest.chat else set()), fields.faults)
    _check(manifest, fields.faults)
    return manifest


def _parse_chat(chat: JsonFields) -> Chat:
    return Chat(chat.get("template", str), chat.texts("variables"))


def _parse_colours(colours: JsonFields) -> Colours:
    interpolation = colours.choice("interpolation", INTERPOLATIONS, Colours.interpolation)
    return Colours(colours.get("file", str), colours.positive("height"), colours.positive("width"), interpolation)


def _check(manifest: TextGenerationManifest, faults: list[str]) -> None:
    size, limit = manifest.vocabulary_size, manifest.limits.max_context
    if manifest.task == IMAGE_GENERATION:
        _check_image(manifest, faults)
    elif manifest.colours is not None:
        faults.append(f"colours: are not for {TEXT_GENERATION}, but for {IMAGE_GENERATION}; export the model again")
    if manifest.generation.max_length > max(1, limit):
        faults.append(f"generation.max_length {manifest.generation.max_length} is above limits.max_context {limit}")
    faults.extend(f"tokens.ends: {end} is outside the vocabulary of {size}" for end in manifest.tokens.ends if end >= size)


def _check_image(manifest: TextGenerationManifest, faults: list[str]) -> None:
    """An image is complete: its start and all pixels fit into the context, and nothing ends it earlier."""
    if (colours := manifest.colours) is None:
        faults.append("colours: missing")
        return
    if manifest.tokens.start is None or manifest.tokens.ends:
        faults.append(f"tokens: {IMAGE_GENERATION} needs start, and no ends")
    least = min(manifest.limits.max_context - 1, manifest.generation.max_length)
    if least < colours.pixels:
        faults.append(
            f"limits.max_context {manifest.limits.max_context} or generation.max_length {manifest.generation.max_length} "
            f"is too small for the start and {colours.pixels} pixels of an image"
        )
