"""Preprocessing of a translation request: checks, sentence splitting, tokenization, frames."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import islice, repeat
from operator import itemgetter

from triptych.decoding import DecodingOptions
from triptych_serving.bundle.manifest import TranslationManifest
from triptych_serving.bundle.search_params import SearchParams
from triptych_serving.errors import InvalidInputError
from triptych_serving.models.request_cost import NUMBER_BYTES, RowLimit, check_characters, check_results
from triptych_serving.models.translation.options import ModelDefaults, ResolvedOptions, may_sample, resolve_options
from triptych_serving.scheduling.admission import QueueLimits
from triptych_serving.scheduling.request import UNFRAMED, FrameTokens, Row
from triptych_serving.text.capitals import in_capitals, is_sentence_in_capitals, lower_capitals, raise_capitals
from triptych_serving.text.languages import LanguagePair, resolve_pair
from triptych_serving.text.spans import Span, joined_spans
from triptych_serving.text.tokenizers import is_unicode
from triptych_serving.text.translation_tokenizer import EncodedSource, TranslationTokenizer
from triptych_serving.text.validation import CONTENTS, EMPTY, NOT_UNICODE, SentenceNames
from triptych_text.sentences import Sentences, Splitter, TooManySentencesError, whole
from triptych_text.steps import Steps

MAX_CHARACTERS = 1_000_000  # of a text that is split; as much as a long novel
MEMO_ENTRIES = 64  # combinations of languages and options that stay resolved: most callers repeat theirs
MEMO_CHARACTERS = 64  # maximum length of both language codes in the memo
MAX_WEIGHTS = 1 << 24  # of one text's alignment, 64 MB: over several sentences they grow with the square of its length
TOKEN_BYTES = 6 * NUMBER_BYTES  # of a token in a response with alignments: text, span and a header for its weights


@dataclass(frozen=True)
class PreparedText:
    """One text of a request, and the rows of its sentences in order; at least one."""

    sentences: Sentences
    rows: tuple[Row, ...]
    spans: tuple[Span, ...] = ()  # of all source tokens; empty if no alignment was requested
    capitals: frozenset[int] = frozenset()  # sentences that the model gets in lower case

    def spelt(self, index: int, translation: str) -> str:
        """Write a sentence's translation in capitals if the sentence is."""
        return raise_capitals(translation, self.sentences.texts[index]) if index in self.capitals else translation


@dataclass(frozen=True)
class PreparedRequest:
    """A checked and tokenized request, whose rows go to the engine."""

    texts: tuple[PreparedText, ...]

    @cached_property
    def rows(self) -> list[Row]:
        """Rows of all texts: the first sentence of each, then the second, so that a short text does not wait for a long one."""
        turns = [(turn, row) for text in self.texts for turn, row in enumerate(text.rows)]
        turns.sort(key=itemgetter(0))
        return [row for _, row in turns]

    def part(self, index: int) -> "PreparedRequest":
        """Return one of the texts."""
        return PreparedRequest((self.texts[index],))


@dataclass(frozen=True)
class Resolved:
    """All that requests with equal languages and options share."""

    pair: LanguagePair
    options: ResolvedOptions
    limit: RowLimit
    splitter: Splitter


class Preprocessor:
    """Turns texts into rows. Thread-safe.

    Args:
        manifest: the model's languages, frames, limits and defaults.
        slots: maximum number of rows that can be searched together for one text.
        limits: of the queue and of one request.
    """

    def __init__(
        self,
        tokenizer: TranslationTokenizer,
        manifest: TranslationManifest,
        slots: int,
        limits: QueueLimits,
    ) -> None:
        self._tokenizer = tokenizer
        self._manifest = manifest
        self._slots, self._limits = slots, limits
        self._resolve_usual = lru_cache(maxsize=MEMO_ENTRIES)(self._resolve)

    def prepare_steps(
        self,
        texts: Sequence[str],
        options: DecodingOptions,
        source_language: str = "",
        target_language: str = "",
        admit: Callable[[SearchParams], None] | None = None,
    ) -> Steps[PreparedRequest]:
        """Check options, split texts, tokenize and frame, in small steps.

        Args:
            source_language: any code for one of the model's languages; empty: the only one.
            target_language: likewise.
            admit: called before the texts are examined; may reject the request for now.

        Raises:
            InvalidInputError: a language or option is not acceptable, a text is empty, too long or not Unicode, or the whole
                request would cost too much; names it.
            UnsupportedError: the model does not support an option.
        """
        resolved = self._resolve_memoized(options, source_language, target_language, len(texts))
        search, prefixes = resolved.options.search, resolved.options.prefixes
        resolved.limit.check(CONTENTS.list, len(texts))
        check_characters(CONTENTS.list, sum(map(len, (*texts, *prefixes))), self._limits)
        if admit is not None:  # a request that can never be admitted is told so before
            admit(search)
        framing, spans = resolved.pair.framing, search.alignment
        if not resolved.options.splits:
            split: Sequence[Sentences] = list(map(whole, texts))
            names = CONTENTS
        else:
            check_texts(texts)
            split = yield from split_texts(texts, resolved.splitter, resolved.limit)
            if prefixes:  # it starts the whole translation
                split = [one.with_first_mark() if prefix else one for one, prefix in zip(split, prefixes, strict=True)]
            names = SentenceNames(owners=[index for index, sentences in enumerate(split) for _ in sentences.texts])
        capitals: Sequence[frozenset[int]] = ()
        if self._manifest.lowers_capitals and split:
            split, prefixes, capitals = zip(*map(_lowered, split, prefixes or repeat("")), strict=True)
        starts: Sequence[tuple[int, ...]] = ()
        if prefixes:
            room = resolved.options.max_tokens - len(framing.forced)
            starts = yield from self._tokenizer.encode_prefix_steps(prefixes, room)
        tokens = self._limits.waiting_tokens
        sentences = [sentence for text in split for sentence in text.texts]
        sources = yield from self._tokenizer.encode_source_steps(sentences, framing, names, spans, tokens)
        prepared = _rows(split, capitals, sources, resolved.options, starts, framing.forced)
        if spans:
            self._check_alignments(prepared)
        return prepared

    def _resolve_memoized(self, options: DecodingOptions, source: str, target: str, texts: int) -> Resolved:
        """Resolve languages and options; combinations whose result does not depend on the texts come from the memo."""
        has_texts = options.target_prefix != () or options.suppress_sequences != ()  # lists have no hash
        if may_sample(options) or has_texts or len(source) + len(target) > MEMO_CHARACTERS:
            return self._resolve(options, source, target, texts)
        return self._resolve_usual(options, source, target, 0)

    def _resolve(self, options: DecodingOptions, source: str, target: str, texts: int) -> Resolved:
        manifest = self._manifest
        pair = resolve_pair(manifest, source, target)
        limit = manifest.limits.max_target_tokens
        defaults = ModelDefaults(manifest.generation, limit, len(pair.framing.forced), manifest.splits)
        resolved = resolve_options(options, texts, defaults, self._slots)
        splitter = Splitter(pair.language, lambda sentence: self._tokenizer.fits(sentence, pair.framing))
        return Resolved(pair, resolved, RowLimit(resolved.search.slots, resolved.max_tokens, self._limits), splitter)

    def _check_alignments(self, prepared: PreparedRequest) -> None:
        size = 0
        for index, text in enumerate(prepared.texts):
            [first, *others] = text.rows
            tokens = (first.max_tokens - first.frame.forced) * len(text.rows) * first.search.num_hypotheses
            weights = tokens * sum(row.text_size for row in text.rows)
            size += NUMBER_BYTES * weights + TOKEN_BYTES * (tokens + weights // tokens)
            if others and weights > MAX_WEIGHTS:
                problem = (
                    f"the {len(text.rows)} sentences of {CONTENTS.whole(index)} may need {weights:,} weights, "
                    f"at most {MAX_WEIGHTS:,} are allowed; send fewer together, or lower max_length"
                )
                raise InvalidInputError("options.return_alignment", problem)
        what = f"the alignments (return_alignment) of {len(prepared.texts):,} texts, {len(prepared.rows):,} sentences"
        remedy = "send fewer together, or lower num_hypotheses or max_length"
        check_results(CONTENTS.list, size, what, self._limits, remedy)


def check_texts(texts: Sequence[str]) -> None:
    """Raise InvalidInputError if a text is empty, too long to be split or not Unicode; names it."""
    for index, text in enumerate(texts):
        if problem := _fault(text):
            raise InvalidInputError(CONTENTS.whole(index), problem)


def split_texts(texts: Sequence[str], splitter: Splitter, limit: RowLimit) -> Steps[list[Sentences]]:
    """Split texts into sentences. Raises InvalidInputError: there are more than `limit` allows."""
    split: list[Sentences] = []
    left = limit.most - len(texts)  # besides the first sentence of each text
    for text in texts:
        try:
            split.append((yield from splitter.split_steps(text, left + 1)))
        except TooManySentencesError:
            limit.check(CONTENTS.list, limit.most + 1)
        left -= len(split[-1].texts) - 1
    return split


def _fault(text: str) -> str:
    if not text.strip():
        return EMPTY
    if len(text) > MAX_CHARACTERS:
        return f"{len(text):,} characters are too long, at most {MAX_CHARACTERS:,} are allowed; split the text"
    return "" if is_unicode(text) else NOT_UNICODE


def _lowered(text: Sentences, prefix: str) -> tuple[Sentences, str, frozenset[int]]:
    """Write sentences in capitals, and the prefix of such a one, in lower case; also return the places of the sentences."""
    found = {place for place, sentence in enumerate(text.texts) if is_sentence_in_capitals(sentence)}
    if prefix.strip() and not in_capitals(prefix):
        found -= {0}  # the prefix stays as it is
    if not found:
        return text, prefix, frozenset()
    sentences = tuple(lower_capitals(one) if place in found else one for place, one in enumerate(text.texts))
    return replace(text, texts=sentences), lower_capitals(prefix) if 0 in found else prefix, frozenset(found)


def _rows(
    split: Sequence[Sentences],
    capitals: Sequence[frozenset[int]],
    sources: Sequence[EncodedSource],
    resolved: ResolvedOptions,
    prefixes: Sequence[tuple[int, ...]],
    forced: tuple[int, ...],
) -> PreparedRequest:
    """Make a row of each sentence; a text's prefix goes to its first one."""
    rest = iter(sources)
    texts = []
    for index, sentences in enumerate(split):
        own = list(islice(rest, len(sentences.texts)))
        rows = tuple(_row(source, resolved, forced) for source in own)
        spans = joined_spans(sentences, sentences.texts, [one.spans for one in own]) if resolved.search.alignment else ()
        texts.append(PreparedText(sentences, rows, spans, capitals[index] if capitals else frozenset()))
        if prefixes:
            rows[0].prefix += prefixes[index]
    return PreparedRequest(tuple(texts))


def _row(source: EncodedSource, resolved: ResolvedOptions, forced: tuple[int, ...]) -> Row:
    framed = source.before or source.after or forced
    frame = FrameTokens(source.before, source.after, len(forced)) if framed else UNFRAMED
    return Row(source.ids, resolved.max_tokens, resolved.search, forced, frame)
