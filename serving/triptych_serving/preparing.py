"""A translation request, checked and tokenized."""

from collections.abc import Sequence
from functools import cached_property
from itertools import islice

from triptych_serving.assembling import Prepared, PreparedText
from triptych_serving.errors import InvalidInputError
from triptych_serving.languages import find_language
from triptych_serving.manifest import TranslationManifest
from triptych_serving.options import Decoding, DecodingOptions, resolve_options
from triptych_serving.row import Row
from triptych_serving.splitting import Sentences, Splitter, whole
from triptych_serving.text import TextCodec
from triptych_serving.textinput import CONTENTS, EMPTY, NOT_UNICODE
from triptych_serving.tokenizing import is_unicode

DEFAULTS = DecodingOptions()
MAX_CHARACTERS = 1_000_000  # of a text that is split; as much as a long novel
MAX_WEIGHTS = 1 << 24  # of one text's alignment, 64 MB: over several sentences they grow with the square of its length


class Preparer:
    """Makes rows of texts. Safe to use from several threads.

    Args:
        codec: the model's tokenizer.
        manifest: its languages, limits and defaults.
        slots: the most rows that can be searched together for one text.
    """

    def __init__(self, codec: TextCodec, manifest: TranslationManifest, slots: int) -> None:
        self._codec = codec
        self._manifest = manifest
        self._slots = slots
        self._splitters = {code: Splitter(code, codec.fits) for code in manifest.source_languages}

    def prepare(self, texts: Sequence[str], options: DecodingOptions, source_language: str = "") -> Prepared:
        """Check options, split, tokenize.

        Args:
            texts: of a request.
            options: as the request has them.
            source_language: which of the model's, for the splitter; empty: the first.

        Raises:
            InvalidInputError: an option is out of range, or a text empty, too long or not Unicode.
        """
        decoding = self._defaults if options == DEFAULTS else self._resolve(options, len(texts))
        prefixes = self._codec.encode_prefixes(decoding.prefixes, decoding.max_tokens)
        if not decoding.splits:
            split, sources = list(map(whole, texts)), self._codec.encode(texts)
        else:
            split = self._split(texts, source_language)
            sentences = [sentence for sentences in split for sentence in sentences.texts]
            owners = [index for index, sentences in enumerate(split) for _ in sentences.texts]
            sources = self._codec.encode_sentences(sentences, owners)
        prepared = _rows(split, sources, decoding, prefixes)
        if decoding.search.alignment:
            _check_alignments(prepared)
        return prepared

    @cached_property
    def _defaults(self) -> Decoding:
        return self._resolve(DEFAULTS, 0)

    def _resolve(self, options: DecodingOptions, texts: int) -> Decoding:
        limit = self._manifest.limits.max_target_tokens
        return resolve_options(options, texts, self._manifest.generation, limit, self._slots)

    def _split(self, texts: Sequence[str], source_language: str) -> list[Sentences]:
        for index, text in enumerate(texts):
            if problem := _fault(text):
                raise InvalidInputError(CONTENTS.whole(index), problem)
        splitter = self._splitter(source_language)
        return [splitter.split(text) for text in texts]

    def _splitter(self, source_language: str) -> Splitter:
        codes = self._manifest.source_languages
        if source_language and source_language not in codes:
            source_language = find_language(source_language, codes, "source_language_code") or ""
        return self._splitters[source_language or codes[0]]


def _fault(text: str) -> str:
    if not text.strip():
        return EMPTY
    if len(text) > MAX_CHARACTERS:
        return f"{len(text):,} characters are too long, at most {MAX_CHARACTERS:,} are allowed; split the text"
    return "" if is_unicode(text) else NOT_UNICODE


def _rows(
    split: Sequence[Sentences], sources: Sequence[Sequence[int]], decoding: Decoding, prefixes: Sequence[tuple[int, ...]]
) -> Prepared:
    """A text's prefix is for its first sentence."""
    rest = iter(sources)
    texts = []
    for index, sentences in enumerate(split):
        rows = tuple(Row(source, decoding.max_tokens, decoding.search) for source in islice(rest, len(sentences.texts)))
        texts.append(PreparedText(sentences, rows))
        if prefixes:
            rows[0].prefix = prefixes[index]
    return Prepared(tuple(texts))


def _check_alignments(prepared: Prepared) -> None:
    for index, text in enumerate(prepared.texts):
        [first, *others] = text.rows
        tokens = first.max_tokens * len(text.rows) * first.search.num_hypotheses
        weights = tokens * sum(row.size for row in text.rows)
        if others and weights > MAX_WEIGHTS:
            problem = (
                f"the {len(text.rows)} sentences of {CONTENTS.whole(index)} may need {weights:,} weights, "
                f"at most {MAX_WEIGHTS:,} are allowed; send fewer together, or lower max_length"
            )
            raise InvalidInputError("options.return_alignment", problem)
