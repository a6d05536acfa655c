"""A loaded model that continues texts: a bundle's tokenizer and graphs behind one decode engine."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from triptych_serving.bundle.bundle import Bundle
from triptych_serving.bundle.manifest import TextGenerationManifest
from triptych_serving.bundle.search_params import SearchParams
from triptych_serving.decoding.engine import EngineOptions
from triptych_serving.decoding.lane_factory import SEARCH_SLOTS
from triptych_serving.decoding.logits_processor import make_processor
from triptych_serving.decoding.prompt_cache import SCORES, PrefixCounters
from triptych_serving.decoding.prompt_lane_factory import PromptLaneFactory, PromptOptions, PromptSpec
from triptych_serving.encoding.options import EncoderOptions
from triptych_serving.errors import InvalidInputError, UnsupportedError
from triptych_serving.models.capabilities import describe
from triptych_serving.models.decode_model import DecodeModel, DecodeModelOptions
from triptych_serving.models.generation.chat import ChatEncoder, ChatTemplate, check_messages, check_variables
from triptych_serving.models.generation.options import (
    INPUTS,
    GenerationRequest,
    ResolvedGeneration,
    check_functions,
    not_a_token,
    resolve_generation,
)
from triptych_serving.models.generation.text import (
    TAIL,
    GeneratedChoice,
    Generation,
    GrowingChoice,
    PreparedGeneration,
    PreparedPrompt,
    StopCheck,
    TextBuilder,
)
from triptych_serving.models.generation.tools import find_calls
from triptych_serving.models.request_cost import NUMBER_BYTES, RowLimit, check_characters, check_results
from triptych_serving.models.translation.memory_plan import STEP_BYTES_PER_TOKEN, weight_bytes
from triptych_serving.runtime.cpu_info import usable_memory
from triptych_serving.runtime.native.library import native_kernels
from triptych_serving.scheduling.engine import Engine, run_rows
from triptych_serving.scheduling.request import Finish, FrameTokens, Hypothesis, Row
from triptych_serving.scheduling.wait_estimator import ExpectedCall
from triptych_serving.text.tokenizers import Tokenizer, is_unicode, read_tokenizer
from triptych_serving.text.validation import NOT_UNICODE
from triptych_text.steps import Steps, finish

if TYPE_CHECKING:  # few requests need it, and its library takes 0.1 s to import
    from triptych_serving.decoding.grammar import Grammar, GrammarCompiler

CACHE_SHARE = 0.5  # of the memory, for the caches of all lanes
SCORE_BYTES = 16 * SCORES  # between the operators of a chunk whose tokens are scored, at most
# Clients of OpenAI's API, such as LiteLLM and CrewAI, know by these words that a prompt is too long, and shorten it.
CONTEXT_LIMIT = "this model's maximum context length is"
PLAIN = GenerationRequest()
LOGPROB_BYTES = 6 * NUMBER_BYTES  # of a token with its log-probability in a response


class Generator(DecodeModel[PromptLaneFactory]):
    """A model that continues texts."""

    manifest: TextGenerationManifest

    def __init__(self, name: str, version: int, bundle: Bundle, options: DecodeModelOptions) -> None:
        self.manifest = bundle.manifest_of(TextGenerationManifest)
        super().__init__(name, version, bundle, options)
        self.context = min(options.max_context, self.manifest.limits.max_context)
        # Threads inside a run read the weights once for all rows, which outweighs their overhead unless the model is small.
        threads, runs = EncoderOptions().engine(self.weight_bytes, options.engine.workers)
        workers = runs.runs
        limits = replace(options.engine.limits, refill_rows=1, gather_seconds=0.0)  # joining costs nothing
        slots = self._slots(options.engine, workers)
        engine = replace(options.engine, limits=limits, workers=workers, slots=slots)
        sizes = PromptOptions(self.context, slots, threads, options.prefix_cache_bytes)
        self._read(bundle)
        make, plan = partial(PromptLaneFactory, bundle, self.precision, sizes), partial(self._memory_plan, bundle, slots)
        self._start(engine, make, plan, options.eager)

    def admit_steps(self, deadline: float | None, request: GenerationRequest) -> Steps[PreparedGeneration]:
        """Check and tokenize a request in small steps, but first reject it if the engine would.

        The deadline is in monotonic seconds. The rows can run once `lanes` is open for them.

        Raises:
            InvalidInputError: a prompt or message is not acceptable, an option is out of range or does not apply; names it.
            UnsupportedError: the model has no chat template, or does not support an option.
            ServingError: as for the engine's `submit`.
        """
        check_functions(request)
        resolved = resolve_generation(request, self.manifest, self.context, self._engine_options.slots)
        prompts = max(1, len(request.prompts) + len(request.token_prompts) + len(request.images))
        check_characters(request.field, request.characters, self._limits)
        RowLimit(resolved.search.slots, resolved.max_tokens, self._limits).check(request.field, prompts)
        self._check_results(request, resolved, prompts)
        self.engine.check(ExpectedCall(prompts, greedy=resolved.search.greedy, field=request.field), deadline)
        return self._prepare_steps(request, resolved)

    def generate(self, request: GenerationRequest) -> list[Generation]:
        """Generate in this process and wait: one result for each prompt, in order.

        Raises:
            ServingError: as for `admit_steps`; or the engine rejected the request, or the runtime failed.
        """
        prepared = finish(self.admit_steps(None, request))
        self.lanes.open_for(prepared.rows)
        run_rows(self.engine, prepared.rows, request.field)
        return list(self.outputs(prepared))

    def stream(self, request: GenerationRequest) -> Iterator[str | Generation]:
        """Generate for one prompt, piece by piece: yields strings to append to the first choice, then the whole result.

        Raises:
            ServingError: as for `generate`.
        """
        prepared = finish(self.admit_steps(None, request))
        yield from self._stream(prepared.rows, self.growing(prepared)[0].advance)
        yield from self.outputs(prepared)

    def outputs(self, prepared: PreparedGeneration) -> Iterator[Generation]:
        """Convert finished rows to results, one for each prompt."""
        for prompt in prepared.prompts:
            choices = [self._choice(prompt, row, one) for row in prompt.rows for one in row.hypotheses]
            yield Generation(tuple(choices), prompt.tokens, prompt.rows[0].cached)

    def growing(self, prepared: PreparedGeneration) -> list[GrowingChoice]:
        """Return the choices of a stream, those of each prompt together."""
        return [
            GrowingChoice(index, choice, prompt, self._decoder(prompt))
            for index, prompt in enumerate(prepared.prompts)
            for choice in range(len(prompt.rows))
        ]

    def may_vary(self, request: GenerationRequest) -> bool:
        """Return True if a repeated request may get other results: drawn at random, or of a prompt with the time."""
        has_time = bool(request.messages) and self.chat is not None and self.chat.may_write_time
        return has_time or resolve_generation(request, self.manifest, self.context, self._engine_options.slots).search.varies

    def bytes_of(self, token: int) -> bytes:
        """Return the bytes of a token; none if it is not part of a text."""
        return self.lanes.vocabulary.bytes_of(token)

    @property
    def prefixes(self) -> PrefixCounters:
        """Counts of the prefix cache."""
        return self.lanes.prefixes.counters

    @property
    def engines(self) -> list[Engine[Any]]:
        return [self.engine]

    def describe(self) -> str:
        return f"{describe(self.capabilities)}, {self.context:,} tokens of context, {self._resources(native_kernels())}"

    def _slots(self, engine: EngineOptions, workers: int) -> int:
        """Return the number of rows of a greedy lane, so that the caches of all lanes fit into their share of the memory."""
        row = PromptSpec.of(self.manifest, self.precision, self.context).row_bytes * (1 + SEARCH_SLOTS)
        rooms: Iterable[int | None] = [usable_memory() // workers]
        if engine.on_gpus:
            rooms = [engine.budgets.of(device).left_bytes for device in self.devices] if engine.budgets else ()
        most = min((int(CACHE_SHARE * room) // row for room in rooms if room is not None), default=engine.slots)
        return max(1, min(engine.slots, most))

    def _memory_plan(self, bundle: Bundle, slots: int) -> Mapping[str, int]:
        """Return the bytes on each GPU by purpose."""
        files, rows = self.manifest.precisions[self.precision].files, slots * (1 + SEARCH_SLOTS)
        row = PromptSpec.of(self.manifest, self.precision, self.context).row_bytes
        step = rows * self.manifest.vocabulary_size * STEP_BYTES_PER_TOKEN + SCORE_BYTES
        return {"weights": weight_bytes(bundle, files), f"caches of {rows} rows": rows * row, "between operators": step}

    def _read(self, bundle: Bundle) -> None:
        """Read the files that turn inputs into tokens, and tokens into results."""
        self.tokenizer = read_tokenizer(bundle.path("tokenizer.json"))
        self._longest = max(map(len, self.tokenizer.get_vocab()))
        self.chat = self._read_chat(bundle)
        self._grammars: GrammarCompiler | None = None

    def _read_chat(self, bundle: Bundle) -> ChatEncoder | None:
        chat = self.manifest.chat
        if chat is None:
            return None
        return ChatEncoder(ChatTemplate(bundle.path(chat.template), chat.variables), self.tokenizer)

    def _decoder(self, prompt: PreparedPrompt) -> Tokenizer:
        """Return the tokenizer that decodes the answers to a prompt."""
        return self.chat.call_decoder if prompt.tools and self.chat else self.tokenizer

    def _choice(self, prompt: PreparedPrompt, row: Row, hypothesis: Hypothesis) -> GeneratedChoice:
        """Decode a hypothesis."""
        builder = TextBuilder(self._decoder(prompt), row, prompt.stop)
        tokens = hypothesis.tokens[row.prompt :]
        builder.add(tokens, is_last=True)
        if row.grammar is not None and not builder.stopped:
            row.grammar.check(tokens, is_whole=hypothesis.finish is Finish.STOP)
        text, calls = find_calls(builder.text, prompt.tools) if prompt.tools else (builder.text, ())
        return GeneratedChoice(
            (prompt.echo or "") + text,
            Finish.STOP if builder.stopped else hypothesis.finish,
            len(tokens),
            builder.stopped,
            hypothesis.score if row.search.scores else None,
            (*row.first_log_probability, *row.log_probabilities),
            tool_calls=calls,
        )

    def _check_results(self, request: GenerationRequest, resolved: ResolvedGeneration, prompts: int) -> None:
        if request.top_logprobs is None:
            return
        tokens = prompts * len(resolved.searches()) * (self.context if request.echo else resolved.max_tokens)
        size = LOGPROB_BYTES * tokens * (1 + request.top_logprobs)
        check_results("top_logprobs", size, f"{tokens:,} tokens", self._limits, "lower top_logprobs, n or max_tokens")

    def _prepare_steps(self, request: GenerationRequest, resolved: ResolvedGeneration) -> Steps[PreparedGeneration]:
        if len(given := [name for name in INPUTS if getattr(request, name)]) > 1:
            raise InvalidInputError(given[0], f"are set beside {given[1]}; send one of them")
        if request.template_variables and not request.messages:
            raise InvalidInputError("template_variables", "apply to messages only")
        resolved = replace(resolved, grammar=self._grammar(request.ruling_field, request.grammar()))
        yield
        prompts = []
        if request.messages:
            ids = self._encode_chat(request)
            yield
            prompts.append(self._prompt("messages", ids, None, request, resolved))
        for index, text in enumerate(request.prompts):
            ids = self._encode(f"prompts[{index}]", text)
            yield
            prompts.append(self._prompt(f"prompts[{index}]", ids, text if request.echo else None, request, resolved))
        for index, tokens in enumerate(request.token_prompts):
            ids = self._check_tokens(field := f"token_prompts[{index}]", tokens)
            prompts.append(self._prompt(field, ids, self.tokenizer.decode(ids) if request.echo else None, request, resolved))
            yield
        return PreparedGeneration(tuple(prompts))

    def _encode_chat(self, request: GenerationRequest) -> list[int]:
        if request.echo:
            raise InvalidInputError("echo", "does not apply to messages")
        if self.chat is None:
            raise UnsupportedError(f"messages: the bundle of model {self.name!r} has no chat template; send prompts")
        check_messages(request.messages)
        for index, message in enumerate(request.messages):
            self._check_text(f"messages[{index}].content", message.content)
        check_variables(request.template_variables)
        return self._with_start_token(
            "messages", self.chat.encode(request.messages, request.template_variables, request.offered)
        )

    def _encode(self, field: str, text: str) -> list[int]:
        self._check_text(field, text)
        [encoding] = self.tokenizer.encode_batch_fast([text])  # releases the GIL
        return self._with_start_token(field, list(encoding.ids))

    def _check_tokens(self, field: str, tokens: Sequence[int]) -> list[int]:
        if tokens and (largest := max(tokens)) >= (size := self.manifest.vocabulary_size):
            raise InvalidInputError(field, not_a_token(largest, size))
        return self._with_start_token(field, list(tokens))

    def _with_start_token(self, field: str, ids: list[int]) -> list[int]:
        if not ids and self.manifest.tokens.start is None:
            raise InvalidInputError(field, "the text is empty, and the model has no token that starts a text")
        return ids or [self.manifest.tokens.start or 0]

    def _check_text(self, field: str, text: str) -> None:
        if len(text) > self._longest * self.context:
            raise InvalidInputError(field, f"{len(text):,} characters are too long, {self._context_text}; shorten it")
        if not is_unicode(text):
            raise InvalidInputError(field, NOT_UNICODE)

    @property
    def _context_text(self) -> str:
        return f"{CONTEXT_LIMIT} {self.context:,} tokens"

    def _grammar(self, field: str, rules: str) -> "Grammar | None":
        """Compile the rules that a text follows, if there are any."""
        if not rules:
            return None
        if not (ends := self.manifest.tokens.ends):
            raise UnsupportedError(f"{field}: model {self.name!r} has no token that ends a text")
        try:
            from triptych_serving.decoding.grammar import GrammarCompiler
        except ImportError as error:
            raise UnsupportedError(f"{field}: needs a package that the server lacks; pip install llguidance") from error
        if self._grammars is None:
            self._grammars = GrammarCompiler(self.lanes.vocabulary, self.manifest.vocabulary_size, ends, self.tokenizer)
        return self._grammars.compile(field, rules)

    def _prompt(
        self, field: str, ids: Sequence[int], echo: str | None, request: GenerationRequest, resolved: ResolvedGeneration
    ) -> PreparedPrompt:
        left = self.context - len(ids)
        if left < 1:
            raise InvalidInputError(
                field, f"{len(ids):,} tokens are too long, {self._context_text}, one of them for the output; shorten it"
            )
        if resolved.max_tokens > left and not resolved.has_default_length:
            problem = f"{resolved.max_tokens:,} is too large after the {len(ids):,} tokens of {field}, {self._context_text}"
            raise InvalidInputError("max_tokens", f"{problem}; at most {left:,} are left")
        new, grammar = min(left, resolved.max_tokens), resolved.grammar
        rows = [self.row(ids, new, search, request, grammar) for search in resolved.searches()]
        return PreparedPrompt(tuple(rows), tuple(request.stop), echo, frozenset(tool.name for tool in request.offered))

    def row(
        self,
        ids: Sequence[int],
        new: int,
        search: SearchParams,
        request: GenerationRequest = PLAIN,
        grammar: "Grammar | None" = None,
    ) -> Row:
        """Make the row of a prompt, which gets at most `new` tokens."""
        prompt, vocabulary = len(ids) - 1, self.lanes.vocabulary
        begins = not any(map(vocabulary.bytes_of, ids[-TAIL:]))
        if search.min_length:
            search = replace(search, min_length=prompt + search.min_length)
        row = Row(
            ids[:1],
            prompt + new,
            search,
            tuple(ids[1:]),
            FrameTokens(forced=prompt),
            prompt=prompt,
            scored=request.echo and request.top_logprobs is not None,
            grammar=None if grammar is None else grammar.copy(begins and vocabulary.strips),
            is_stopped=StopCheck(request.stop, prompt, vocabulary, begins) if request.stop else None,
        )
        start = ids[0] if ids[0] < self.manifest.vocabulary_size else -1  # that of images has no logit
        row.processor = make_processor(row, replace(self.lanes.spec.tokens, start=start), vocabulary, begins)
        return row
