"""Texts by a JSON schema or a regular expression: in every step, only tokens that keep its rules may be drawn.

The library llguidance tells which tokens may follow (https://github.com/guidance-ai/llguidance).
"""

import re
from collections.abc import Iterator, Sequence

import numpy as np
from llguidance import LLMatcher, LLParserLimits, LLTokenizer, TokenizerWrapper

from triptych_serving.decoding.logits_processor import Ints
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
    """Rules for a text, and how far a text has followed them."""

    def __init__(self, matcher: LLMatcher, field: str, size: int) -> None:
        self._matcher, self._field, self._size = matcher, field, size
        self._read = 0  # tokens of the text

    def copy(self) -> "Grammar":
        """Return the same rules at the beginning of a text."""
        copy = self._matcher.deep_copy()
        copy.reset()
        return Grammar(copy, self._field, self._size)

    def next_tokens(self, tokens: Sequence[int]) -> Ints:
        """Return the tokens that may come next; after a fault those that end the text.

        Args:
            tokens: all so far: those of the last call and what follows them, or those of a text that began again.
        """
        if len(tokens) < self._read:
            self._matcher.reset()
            self._read = 0
        self._matcher.consume_tokens(list(tokens[self._read :]))
        self._read = len(tokens)
        bits = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
        return np.flatnonzero(np.unpackbits(bits, count=self._size, bitorder="little"))

    def check(self, tokens: Sequence[int]) -> None:
        """Check a whole text. Raises InvalidInputError: it broke the rules, or they took too long to follow."""
        matcher = self._matcher.deep_copy()
        matcher.reset()
        if not (matcher.consume_tokens(list(tokens)) and matcher.is_accepting()):
            reason = _fault(self._matcher) or _fault(matcher) or "other options left no token that may follow"
            raise InvalidInputError(self._field, f"the text cannot follow it: {reason}")


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
