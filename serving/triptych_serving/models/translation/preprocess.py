"""A translation request, checked and tokenized."""

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from itertools import islice

from triptych_serving.bundle.manifest import TranslationManifest
from triptych_serving.bundle.search_params import Search
from triptych_serving.errors import InvalidInputError
from triptych_serving.models.translation.options import Decoding, DecodingOptions, ModelDefaults, resolve_options
from triptych_serving.models.translation.postprocess import Prepared, PreparedText
from triptych_serving.scheduling.request import UNFRAMED, FrameTokens, Row
from triptych_serving.text.language_pair import LanguagePair, resolve_pair
from triptych_serving.text.spans import joined_spans
from triptych_serving.text.tokenizers import is_unicode
from triptych_serving.text.translation_tokenizer import Source, TextCodec
from triptych_serving.text.validation import CONTENTS, EMPTY, NOT_UNICODE, SentenceNames
from triptych_text.sentences import Sentences, Splitter, whole

DEFAULTS = DecodingOptions()
MAX_CHARACTERS = 1_000_000  # of a text that is split; as much as a long novel
USUAL = 64  # pairs of languages, and options, of which is remembered what they mean: most callers always ask for the same
USUAL_CHARACTERS = 64  # of the former
MAX_WEIGHTS = 1 << 24  # of one text's alignment, 64 MB: over several sentences they grow with the square of its length


class Preparer:
    """Makes rows of texts. Safe to use from several threads.

    Args:
        codec: the model's tokenizers.
        manifest: its languages, frames, limits and defaults.
        slots: the most rows that can be searched together for one text.
    """

    def __init__(self, codec: TextCodec, manifest: TranslationManifest, slots: int) -> None:
        self._codec = codec
        self._manifest = manifest
        self._slots = slots
        self._usual_pair = lru_cache(maxsize=USUAL)(partial(resolve_pair, manifest))
        self._usual = lru_cache(maxsize=USUAL)(partial(_resolve, manifest, slots, 0))

    def prepare(
        self,
        texts: Sequence[str],
        options: DecodingOptions,
        source_language: str = "",
        target_language: str = "",
        admits: Callable[[Search], None] = lambda _: None,
    ) -> Prepared:
        """Check options, split, tokenize, frame.

        Args:
            texts: of a request.
            options: as the request has them.
            source_language: any code for one of the model's; empty: the only one.
            target_language: likewise.
            admits: called before the texts are looked at; may refuse the search.

        Raises:
            InvalidInputError: a language or an option is not one of the model's, or a text empty, too long or not Unicode.
            UnsupportedError: the model has no such option.
        """
        pair = self._pair(source_language, target_language)
        decoding = self._decoding(options, len(texts), len(pair.framing.forced))
        admits(decoding.search)
        prefixes = self._codec.encode_prefixes(decoding.prefixes, decoding.max_tokens - len(pair.framing.forced))
        spans = decoding.search.alignment
        if not decoding.splits:
            split, sources = list(map(whole, texts)), self._codec.encode_sources(texts, pair.framing, spans=spans)
        else:
            split = self._split(texts, pair)
            sentences = [sentence for sentences in split for sentence in sentences.texts]
            owners = [index for index, sentences in enumerate(split) for _ in sentences.texts]
            sources = self._codec.encode_sources(sentences, pair.framing, SentenceNames(owners=owners), spans)
        prepared = _rows(split, sources, decoding, prefixes, pair.framing.forced)
        if decoding.search.alignment:
            _check_alignments(prepared)
        return prepared

    def _pair(self, source: str, target: str) -> LanguagePair:
        if len(source) + len(target) > USUAL_CHARACTERS:
            return resolve_pair(self._manifest, source, target)
        return self._usual_pair(source, target)

    def _decoding(self, options: DecodingOptions, texts: int, forced: int) -> Decoding:
        if options.may_sample or options.target_prefix != () or options.suppress_sequences != ():  # lists have no hash
            return _resolve(self._manifest, self._slots, texts, options, forced)
        return self._usual(options, forced)

    def _split(self, texts: Sequence[str], pair: LanguagePair) -> list[Sentences]:
        for index, text in enumerate(texts):
            if problem := _fault(text):
                raise InvalidInputError(CONTENTS.whole(index), problem)
        splitter = Splitter(pair.language, lambda sentence: self._codec.fits(sentence, pair.framing))
        return [splitter.split(text) for text in texts]


def _resolve(manifest: TranslationManifest, slots: int, texts: int, options: DecodingOptions, forced: int) -> Decoding:
    defaults = ModelDefaults(manifest.generation, manifest.limits.max_target_tokens, forced, manifest.splits)
    return resolve_options(options, texts, defaults, slots)


def _fault(text: str) -> str:
    if not text.strip():
        return EMPTY
    if len(text) > MAX_CHARACTERS:
        return f"{len(text):,} characters are too long, at most {MAX_CHARACTERS:,} are allowed; split the text"
    return "" if is_unicode(text) else NOT_UNICODE


def _rows(
    split: Sequence[Sentences],
    sources: Sequence[Source],
    decoding: Decoding,
    prefixes: Sequence[tuple[int, ...]],
    forced: tuple[int, ...],
) -> Prepared:
    """A text's prefix is for its first sentence."""
    rest = iter(sources)
    texts = []
    for index, sentences in enumerate(split):
        own = list(islice(rest, len(sentences.texts)))
        rows = tuple(_row(source, decoding, forced) for source in own)
        spans = joined_spans(sentences, sentences.texts, [source.spans for source in own])
        texts.append(PreparedText(sentences, rows, spans))
        if prefixes:
            rows[0].prefix += prefixes[index]
    return Prepared(tuple(texts))


def _row(source: Source, decoding: Decoding, forced: tuple[int, ...]) -> Row:
    framed = source.before or source.after or forced
    frame = FrameTokens(source.before, source.after, len(forced)) if framed else UNFRAMED
    return Row(source.ids, decoding.max_tokens, decoding.search, forced, frame)


def _check_alignments(prepared: Prepared) -> None:
    for index, text in enumerate(prepared.texts):
        [first, *others] = text.rows
        tokens = (first.max_tokens - first.frame.forced) * len(text.rows) * first.search.num_hypotheses
        weights = tokens * sum(row.text_size for row in text.rows)
        if others and weights > MAX_WEIGHTS:
            problem = (
                f"the {len(text.rows)} sentences of {CONTENTS.whole(index)} may need {weights:,} weights, "
                f"at most {MAX_WEIGHTS:,} are allowed; send fewer together, or lower max_length"
            )
            raise InvalidInputError("options.return_alignment", problem)
