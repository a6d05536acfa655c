"""Texts by a JSON schema or a regular expression: in every step, tokens that would break its rules are banned.

The library llguidance tells which tokens may follow (https://github.com/guidance-ai/llguidance).
"""

import re
from collections.abc import Iterator, Sequence

import numpy as np
from llguidance import LLMatcher, LLParserLimits, LLTokenizer, TokenizerWrapper
from numpy.typing import NDArray

from triptych_serving.decoding.logits_processor import BAN, Ints, LogitEdits, LogitsProcessor, ban
from triptych_serving.errors import InvalidInputError
from triptych_serving.text.tokenizers import Tokenizer
from triptych_serving.text.vocabulary import Vocabulary

MOST_CHARACTERS = 16_384  # of a schema or an expression, which takes up to 0.4 s to compile then
ERROR_CHARACTERS = 300
# A fifth of the library's own limits: no token took longer than 40 ms in hostile rules; most take 0.1 ms.
LIMITS = LLParserLimits(step_lexer_fuel=50_000, step_max_items=10_000, max_lexer_states=50_000, max_grammar_size=100_000)
# Where any white space is allowed, small models write it without end.
WHITE_SPACE = r" |\n {0,16}"


class Grammar:
    """Rules for a text. Each row has a copy."""

    def __init__(self, matcher: LLMatcher, field: str, size: int) -> None:
        self._matcher, self.field, self._size = matcher, field, size

    def processor(self, prompt: int, others: LogitsProcessor) -> "GrammarProcessor":
        """Return the processor of a row; see `GrammarProcessor`."""
        return GrammarProcessor(self._copy(), prompt, others)

    def advance(self, tokens: Sequence[int]) -> None:
        """Read the next tokens of the text."""
        self._matcher.consume_tokens(list(tokens))

    def reset(self) -> None:
        """Begin again."""
        self._matcher.reset()

    def allowed(self) -> NDArray[np.bool_]:
        """Return by token `[V]` whether it may come next; after a fault only those that end the text."""
        bits = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
        return np.unpackbits(bits, count=self._size, bitorder="little").view(np.bool_)

    def check(self, tokens: Sequence[int]) -> None:
        """Check a whole text. Raises InvalidInputError: it broke the rules, or they took too long to follow."""
        copy = self._copy()
        copy.advance(tokens)
        if not copy._matcher.is_accepting():
            reason = _fault(self._matcher) or _fault(copy._matcher) or "other options left no token that may follow"
            raise InvalidInputError(self.field, f"the text cannot follow it: {reason}")

    def _copy(self) -> "Grammar":
        copy = self._matcher.deep_copy()
        copy.reset()
        return Grammar(copy, self.field, self._size)


class GrammarCompiler:
    """Makes grammars for one model. Thread-safe.

    Args:
        vocabulary: bytes of each token.
        size: number of tokens that the model decides among.
        ends: tokens that end a text.
        tokenizer: of the vocabulary.
    """

    def __init__(self, vocabulary: Vocabulary, size: int, ends: Sequence[int], tokenizer: Tokenizer) -> None:
        self.eos_token_id, self.bos_token_id, self._size = ends[0], None, size
        self.tokens = [vocabulary.bytes_of(token) for token in range(size)]
        self.special_token_ids = [token for token, surface in enumerate(self.tokens) if not surface]
        self._token_of = {surface: token for token, surface in reversed(list(enumerate(self.tokens))) if surface}
        self._encode = tokenizer.encode
        self._tokenizer = LLTokenizer(TokenizerWrapper(self), size, list(ends))

    def __call__(self, text: str) -> list[int]:
        """Tokenize a text that the rules leave no choice about, as the library asks for it."""
        if isinstance(text, bytes):
            raise TypeError("bytes")  # so that the library passes texts
        ids: list[int] = self._encode(text, add_special_tokens=False).ids
        if b"".join(self.tokens[each] for each in ids) == text.encode():
            return ids
        return list(self._longest(text.encode()))  # some tokenizers begin every text with a space

    def _longest(self, text: bytes) -> Iterator[int]:
        """Yield the longest tokens of which the text, or its beginning, is made."""
        while text:
            size = next((size for size in range(len(text), 0, -1) if text[:size] in self._token_of), 0)
            if not size:
                return
            yield self._token_of[text[:size]]
            text = text[size:]

    def compile(self, field: str, text: str) -> Grammar:
        """Read rules.

        Args:
            field: of the request, "json_schema" or "regex".
            text: its value.

        Raises:
            InvalidInputError: the rules are too long, wrong, or not supported.
        """
        if len(text) > MOST_CHARACTERS:
            raise InvalidInputError(field, f"{len(text):,} characters are too long, at most {MOST_CHARACTERS:,}; shorten it")
        try:
            rules = (
                LLMatcher.grammar_from_json_schema(text, overrides={"whitespace_pattern": WHITE_SPACE, "coerce_one_of": True})
                if field == "json_schema"
                else LLMatcher.grammar_from_regex(text)
            )
        except ValueError as error:
            raise InvalidInputError(field, f"it is no JSON schema: {error}") from error
        matcher = LLMatcher(self._tokenizer, rules, log_level=0, limits=LIMITS)
        if fault := _fault(matcher):
            raise InvalidInputError(field, f"{fault}; correct or simplify it")
        matcher.compute_bitmask()  # what takes longest, here rather than between two steps of all rows
        return Grammar(matcher, field, self._size)


def _fault(matcher: LLMatcher) -> str:
    """Return the library's message in one line, for expressions without their text; empty if there is no fault."""
    text = matcher.get_error().partition("<state>")[0]
    found = re.search(r"^error: (.*)", text, re.MULTILINE)
    return " ".join((found[1] if found else text).split())[:ERROR_CHARACTERS]


class GrammarProcessor:
    """Computes the edits of one row with a grammar, and those of its other options; see `LogitsProcessor`.

    Args:
        grammar: a copy of its own.
        prompt: number of tokens at the start that belong to the prompt.
        others: the edits of the other options.
    """

    is_fixed = False

    def __init__(self, grammar: Grammar, prompt: int, others: LogitsProcessor) -> None:
        self.grammar, self._prompt, self._others = grammar, prompt, others
        self._read = 0  # tokens that the grammar has read

    def edits(self, history: Ints) -> LogitEdits:
        """Return the edits for the next token, after `[T]` tokens."""
        tokens = history[self._prompt :].tolist()
        if len(tokens) < self._read:  # the row began again
            self.grammar.reset()
            self._read = 0
        self.grammar.advance(tokens[self._read :])
        self._read = len(tokens)
        allowed, others = self.grammar.allowed(), self._others.edits(history)
        kept = (others.offsets == BAN) | allowed[others.tokens]  # a banned token may occur again with the same edit alone
        banned = ban(np.flatnonzero(~allowed))
        pairs = ((banned.tokens, others.tokens), (banned.factors, others.factors), (banned.offsets, others.offsets))
        return LogitEdits(*(np.concatenate((ours, theirs[kept])) for ours, theirs in pairs))
