"""A request to continue texts: its options, checked and with the model's defaults."""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from triptych.decoding import Bounds, DecodingOptions
from triptych_serving.bundle.manifest import IMAGE_GENERATION, TEXT_GENERATION, TextGenerationManifest
from triptych_serving.bundle.search_params import SearchParams, SearchRules
from triptych_serving.errors import InvalidInputError
from triptych_serving.models.generation.chat import ChatMessage, TemplateValue
from triptych_serving.models.generation.tools import AUTO, NONE, Tool, call_or_json, check_tools, forced_call
from triptych_serving.models.request_cost import check_range
from triptych_serving.models.translation.options import DEFAULTS, ModelDefaults, check_phrases, resolve_options

if TYPE_CHECKING:
    from triptych_serving.decoding.grammar import Grammar

MAX_STOP = 16
MAX_TOP_LOGPROBS = 20
MAX_BIASES, BIAS = 1_024, Bounds(-100, 100)
IMAGE_WORK = 100_000
CHAT_WORK = 4_000  # of a message: a template may be slow, and many empty messages are a long prompt
RULES_WORK = 40_000  # of a JSON schema or a regular expression
FOREIGN = ("coverage_penalty", "target_prefix", "return_alignment", "split_sentences")  # options of translations alone
FOREIGN_TO_IMAGES = (*FOREIGN, "suppress_sequences", "min_length", "max_length")
INPUTS = ("images", "messages", "token_prompts", "prompts")  # fields, of which a request has one
SAMPLING = ("sampling_topk", "sampling_topp", "sampling_minp", "sampling_temperature")
NAMES = {"options.max_length": "max_tokens", "options.num_hypotheses": "n"}


@dataclass(frozen=True, kw_only=True)
class GenerationRequest:
    """Prompts, a chat or images, and the options of `triptych.v1.GenerateRequest`; None is the model's default."""

    prompts: Sequence[str] = ()
    token_prompts: Sequence[Sequence[int]] = ()
    messages: Sequence[ChatMessage] = ()
    images: Sequence[bytes] = ()  # files, to be completed
    rows: int | None = None  # of pixels of each image to keep
    options: DecodingOptions = DEFAULTS
    max_tokens: int | None = None
    n: int | None = None
    stop: Sequence[str] = ()
    top_logprobs: int | None = None
    echo: bool = False
    json_schema: str = ""
    regex: str = ""
    template_variables: Mapping[str, TemplateValue] = field(default_factory=dict)  # of a chat's template
    tools: Sequence[Tool] = ()  # that the answer of a chat may call
    tool_choice: str = ""
    logit_bias: Mapping[int, float] = field(default_factory=dict)  # by token

    @property
    def characters(self) -> int:
        """Length of all texts; a token counts as a character."""
        tools = sum(len(tool.name) + len(tool.description) + len(tool.parameters) for tool in self.tools)
        prompts = sum(map(len, (*self.prompts, *self.token_prompts)))
        return prompts + sum(message.characters for message in self.messages) + tools

    @property
    def offered(self) -> Sequence[Tool]:
        """The functions that the answer may call."""
        return () if self.tool_choice == NONE else self.tools

    @property
    def forces_call(self) -> bool:
        """True if the answer must be a call."""
        return self.tool_choice not in ("", AUTO, NONE)

    @property
    def ruling_field(self) -> str:
        """The field with the rules that texts follow; empty if there are none."""
        return "tools" if self.forces_call else "json_schema" if self.json_schema else "regex" if self.regex else ""

    def grammar(self) -> str:
        """Return these rules: a JSON schema, or of the field `regex` an expression."""
        if self.forces_call:
            return forced_call(self.tools, self.tool_choice)
        if self.json_schema and self.offered:
            return call_or_json(self.offered, self.json_schema)
        return self.json_schema or self.regex

    @property
    def work(self) -> int:
        """Roughly the characters to process; many for a small image file, the template of a chat, or rules."""
        images = sum(IMAGE_WORK + len(image) for image in self.images)
        return self.characters + images + CHAT_WORK * len(self.messages) + RULES_WORK * bool(self.ruling_field)

    @property
    def task(self) -> str:
        """The capability that a model must have."""
        return IMAGE_GENERATION if self.images else TEXT_GENERATION

    @property
    def field(self) -> str:
        """The field with the inputs."""
        return next((name for name in INPUTS if getattr(self, name)), "prompts")


@dataclass(frozen=True)
class ResolvedGeneration:
    """Options that are in range, with every default filled in."""

    search: SearchParams
    max_tokens: int
    has_default_length: bool  # `max_tokens` is the model's default: a long prompt may leave room for fewer
    is_seeded: bool  # the request has a seed, from which each prompt begins
    grammar: "Grammar | None" = None  # that texts follow

    def searches(self) -> list[SearchParams]:
        """Return the parameters of the rows of a prompt: one, or one for each sample."""
        search = self.search
        if not search.samples:
            return [search]
        seed = search.seed if self.is_seeded else secrets.randbits(64)
        return [replace(search, num_hypotheses=1, seed=seed, sample=index) for index in range(search.num_hypotheses)]


def resolve_generation(
    request: GenerationRequest, manifest: TextGenerationManifest, context: int, slots: int
) -> ResolvedGeneration:
    """Check options and fill in the model's defaults.

    Args:
        context: tokens of prompt and output together.
        slots: maximum number of samples or beams.

    Raises:
        InvalidInputError: an option is out of range, does not apply or contradicts another one; names it.
        UnsupportedError: the model's searches do not have the option.
    """
    foreign, what = (FOREIGN_TO_IMAGES, "completed images") if request.images else (FOREIGN, "generated text")
    for name in foreign:
        if getattr(request.options, name) not in (None, (), False):
            raise InvalidInputError(f"options.{name}", f"does not apply to {what}")
    options = _same(_same(request.options, "max_length", request.max_tokens), "num_hypotheses", request.n)
    generation = replace(
        manifest.generation, rules=SearchRules.TRANSFORMERS, max_length=min(manifest.generation.max_length, context)
    )
    limited = options.sampling_topk is not None or options.sampling_topp is not None or bool(options.sampling_minp)
    if not limited and (options.beam_size or 1) == 1:
        absent = [name for name in SAMPLING if getattr(options, name) is None]
        options = replace(options, **{name: getattr(generation, name) for name in absent})
    try:
        resolved = resolve_options(options, 1, ModelDefaults(generation, context + 1), slots)
    except InvalidInputError as error:
        given = {"options.max_length": request.max_tokens, "options.num_hypotheses": request.n}.get(error.field)
        raise error if given is None else InvalidInputError(NAMES[error.field], error.problem) from error
    check_phrases("stop", request.stop, MAX_STOP)
    top = request.top_logprobs
    if top is not None:
        check_range("top_logprobs", top, 0, MAX_TOP_LOGPROBS)
    own = {"stop": request.stop, "top_logprobs": top is not None, "json_schema": request.json_schema, "regex": request.regex}
    own |= {"tool_choice": request.forces_call}
    for name, value in own.items():
        if value and resolved.search.beam_size > 1:
            raise InvalidInputError(name, f"is not for beam search, options.beam_size is {resolved.search.beam_size}")
    biases = _check_biases(request.logit_bias, manifest.vocabulary_size)
    search = replace(resolved.search, top_log_probabilities=top, logit_bias=biases)
    if field := request.ruling_field:
        if request.json_schema and request.regex:
            raise InvalidInputError(field, "is set beside regex; send one of them")
        if request.options.min_length:
            raise InvalidInputError("options.min_length", f"does not apply with {field}, which decides where a text may end")
        search = replace(search, follows_grammar=True, min_length=0)
    return ResolvedGeneration(search, resolved.max_tokens, options.max_length is None, options.seed is not None)


def _check_biases(biases: Mapping[int, float], vocabulary_size: int) -> tuple[tuple[int, float], ...]:
    """Return what is added to logits, sorted. Raises InvalidInputError: too many, not a token, or out of range."""
    if len(biases) > MAX_BIASES:
        raise InvalidInputError("logit_bias", f"{len(biases):,} tokens, the limit is {MAX_BIASES:,}")
    for token, value in biases.items():
        if token >= vocabulary_size:
            raise InvalidInputError("logit_bias", not_a_token(token, vocabulary_size))
        if value not in BIAS:
            raise InvalidInputError(f"logit_bias[{token}]", f"{value} is out of range, it must be {BIAS}")
    return tuple(sorted((token, value) for token, value in biases.items() if value))


def not_a_token(token: int, vocabulary_size: int) -> str:
    """Describe a number beyond the model's tokens."""
    return f"{token:,} is not a token of the model, whose tokens are 0 to {vocabulary_size - 1:,}"


def check_functions(request: GenerationRequest) -> None:
    """Check functions, and that they are for a chat without a regular expression. Raises InvalidInputError: names the field."""
    if not request.tools and not request.forces_call:
        return
    check_tools(request.tools, request.tool_choice)
    if not request.messages:
        raise InvalidInputError("tools", "apply to messages only")
    if request.regex:
        raise InvalidInputError("tools", "are set beside regex; send one of them")


def _same(options: DecodingOptions, name: str, value: Any) -> DecodingOptions:
    """Return the options with the value of a field that the request has twice."""
    if value is None:
        return options
    if getattr(options, name) not in (None, value):
        wire = NAMES[f"options.{name}"]
        raise InvalidInputError(wire, f"{value} contradicts options.{name}, which is {getattr(options, name)}; set one of them")
    return replace(options, **{name: value})
