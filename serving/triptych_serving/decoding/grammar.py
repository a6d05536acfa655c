"""Texts by a JSON schema or a regular expression: in every step, only tokens that keep its rules may be drawn.

The library llguidance tells which tokens may follow (https://github.com/guidance-ai/llguidance).
"""

import json
import re
from collections.abc import Iterator, Sequence
from decimal import Decimal
from time import thread_time
from typing import Any

import numpy as np
from llguidance import LLMatcher, LLParserLimits, LLTokenizer, TokenizerWrapper

from triptych_serving.decoding.logits_processor import Ints
from triptych_serving.errors import InvalidInputError
from triptych_serving.text.tokenizers import Tokenizer
from triptych_serving.text.vocabulary import Vocabulary

MOST_CHARACTERS = 16_384  # of a schema or an expression
ERROR_CHARACTERS = 300
LIMITS = LLParserLimits(
    max_items_in_row=4_000, step_lexer_fuel=50_000, step_max_items=10_000, max_lexer_states=50_000, max_grammar_size=100_000
)
# What those limits do not bound: time and memory of some rules.
MOST_REPEATS = 2_500  # of parts that repeat themselves: (a{50}){50}
MOST_OPTIONAL = 1_000  # parts that may be empty: of n in a row, memory and time grow with the square of n
MOST_MULTIPLE = 10_000  # product of all `multipleOf`, as integers
# Expressions that one text must match, such as those in `allOf`: time and memory grow with the power of their number.
MOST_AT_ONCE = 8
# Numbers of schemas become floats and then integers of 64 bits; near the lowest one the library ends the process.
LEAST_NUMBER, MOST_NUMBER = 1 - 2**63, 2**63 - 1
SLOW_SECONDS, MOST_SLOW = 0.05, 3  # CPU time of a slow token, and number of them that a text may have
# What repetitions depend on in an expression: escapes and classes, which hide the signs in them, groups, and numbers.
PARTS = re.compile(r"\\[xuUpP]\{[^}]*\}|\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\(|\)|\{(\d+)(?:,(\d*))?\}|.", re.DOTALL)
# Where any white space is allowed, small models write it without end.
WHITE_SPACE = r" |\n {0,16}"
# Members of a schema. Where an object may have other properties than those listed, small models write them without end.
DATA = ("const", "default", "enum", "examples")  # no schemas
BY_NAME = ("properties", "patternProperties", "$defs", "definitions")  # map names to schemas
IN_PLACE = frozenset(("$ref", "anyOf", "oneOf"))  # describe the same value, as allOf does
CONDITIONS = ("not", "if")
EXPRESSIONS = ("pattern", "format")
WITH_EXPRESSIONS = frozenset((*EXPRESSIONS, "properties", "patternProperties", "additionalProperties", "items", "prefixItems"))
OTHERS = ("additionalProperties", "patternProperties", "propertyNames", "unevaluatedProperties", "minProperties")


class Grammar:
    """Rules for a text, and how far a text has followed them.

    Args:
        ends: tokens that end a text.
        spaced: tokens that begin with a space.
        drops_space: a space at the start is not part of the text, so no token with one comes first.
    """

    def __init__(self, matcher: LLMatcher, field: str, size: int, ends: Ints, spaced: Ints, drops_space: bool = False) -> None:
        self._matcher, self._field, self._size, self._ends = matcher, field, size, ends
        self._spaced, self._drops_space = spaced, drops_space
        self._read = 0  # tokens of the text
        self._slow = 0  # tokens that took long

    def copy(self, drops_space: bool = False) -> "Grammar":
        """Return the same rules at the beginning of a text."""
        copy = self._matcher.deep_copy()
        copy.reset()
        return Grammar(copy, self._field, self._size, self._ends, self._spaced, drops_space)

    def next_tokens(self, tokens: Sequence[int] | Ints) -> Ints:
        """Return the tokens that may come next; after a fault those that end the text.

        Args:
            tokens: all so far: those of the last call and what follows them, or those of a text that began again.
        """
        if len(tokens) < self._read:
            self._matcher.reset()
            self._read = 0
        if self._slow == MOST_SLOW:
            return self._ends
        began = thread_time()
        self._matcher.consume_tokens(list(map(int, tokens[self._read :])))  # mostly one, however long the text is
        self._read = len(tokens)
        bits = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
        self._slow += thread_time() - began > SLOW_SECONDS
        allowed = np.unpackbits(bits, count=self._size, bitorder="little")
        allowed[self._ends] = allowed[self._ends[0]]
        if self._drops_space and not self._read:
            allowed[self._spaced] = 0
        return np.flatnonzero(allowed)

    def check(self, tokens: Sequence[int], is_whole: bool) -> None:
        """Check a text, or the beginning of one. Raises InvalidInputError: it broke the rules, or they took too long."""
        matcher = self.copy()._matcher
        if matcher.consume_tokens(list(tokens)) and (matcher.is_accepting() or not is_whole):
            return
        slow = "its rules take too long to follow; simplify them" if self._slow == MOST_SLOW else ""
        other = "other options left no token that may follow"
        if self._drops_space and not tokens:
            other = "after an empty prompt, texts of this model cannot begin with a space"
        reason = slow or _fault(self._matcher) or _fault(matcher) or other
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
        self._ends = np.array(ends, np.int64)
        self.tokens = [b"" if token in ends else vocabulary.bytes_of(token) for token in range(size)]
        self.special_token_ids = [token for token, surface in enumerate(self.tokens) if not surface]
        self._spaced = np.array([token for token, surface in enumerate(self.tokens) if surface.startswith(b" ")], np.int64)
        self._token_of = {surface: token for token, surface in reversed(list(enumerate(self.tokens))) if surface}
        self._encode = tokenizer.encode
        self._tokenizer = LLTokenizer(TokenizerWrapper(self), size, ends[0])

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
            field: of the request: "regex", or another one for a JSON schema.
            text: the expression or schema.

        Raises:
            InvalidInputError: the rules are too long, wrong, or not supported.
        """
        if len(text) > MOST_CHARACTERS:
            raise InvalidInputError(field, f"{len(text):,} characters are too long, at most {MOST_CHARACTERS:,}; shorten it")
        try:
            if field != "regex":
                schema = json.loads(text)
                _check_schema(field, schema)
                _close_objects(schema)
                rules = LLMatcher.grammar_from_json_schema(
                    json.dumps(schema), overrides={"whitespace_pattern": WHITE_SPACE, "coerce_one_of": True}
                )
            else:
                _check_expressions(field, [text])
                rules = LLMatcher.grammar_from_regex(text)
        except (ValueError, RecursionError) as error:
            raise InvalidInputError(field, f"it cannot be read: {error}") from error
        matcher = LLMatcher(self._tokenizer, rules, log_level=0, limits=LIMITS)
        if fault := _fault(matcher):
            raise InvalidInputError(field, f"{fault}; correct or simplify it")
        matcher.compute_bitmask()  # what takes longest, here rather than between two steps of all rows
        return Grammar(matcher, field, self._size, self._ends, self._spaced)


def _check_schema(field: str, schema: object) -> None:
    """Reject a schema that would take too long, or that would change how JSON is written. Raises InvalidInputError."""
    parts, expressions, multiple = [("", schema)], list[str](), 1.0
    count, combined = 0, 0  # expressions, also of formats; schemas that others of the same value are combined with
    while parts:
        name, part = parts.pop()
        if isinstance(part, list):
            parts += [(name, each) for each in part]
        if isinstance(part, int | float) and not _is_exact(name, part):
            remedy = f"use one between -{2**53:,} and {2**53:,}"
            raise InvalidInputError(field, f"{name[:40]}: the number {part!r:.40} cannot be followed exactly; {remedy}")
        if not isinstance(part, dict):
            continue
        parts += part.items()
        if "x-guidance" in part:
            raise InvalidInputError(field, "x-guidance is not supported; leave it out")
        count += sum(name in part for name in EXPRESSIONS)
        combined += max(0, _schemas_in_place(part) + (not WITH_EXPRESSIONS.isdisjoint(part)) - 1)
        if count > MOST_AT_ONCE <= combined:
            problem = f"it combines more than {MOST_AT_ONCE} schemas, in allOf for instance, beside as many patterns or formats"
            raise InvalidInputError(field, f"{problem}; write them as fewer schemas")
        expressions += [each for each in (part.get("pattern"), *(part.get("patternProperties") or ())) if isinstance(each, str)]
        if isinstance(step := part.get("multipleOf"), int | float) and step:
            number = Decimal(repr(step)).normalize().as_tuple()
            multiple *= float(f"{''.join(map(str, number.digits))}e{max(0, int(number.exponent))}")
            if multiple > MOST_MULTIPLE:
                problem = f"multipleOf: {step} is too large, all of them multiply to at most {MOST_MULTIPLE:,}"
                raise InvalidInputError(field, problem)
    _check_expressions(field, expressions)


def _close_objects(schema: object) -> None:
    """Allow no other properties in objects that list theirs, unless the schema says something about others.

    A schema that combines several schemas of one object is left as it is: each of them lists only some of the properties.
    """
    parts, objects = [schema], list[dict[str, Any]]()
    while parts:
        part = parts.pop()
        if isinstance(part, list):
            parts += part
        if not isinstance(part, dict):
            continue
        for name, value in part.items():
            if name not in DATA:
                parts += value.values() if name in BY_NAME and isinstance(value, dict) else [value]
        if _schemas_in_place(part) + ("properties" in part) > 1 or not part.keys().isdisjoint(CONDITIONS):
            return
        listed, required = part.get("properties"), part.get("required", [])
        readable = isinstance(listed, dict) and isinstance(required, list)
        if listed and readable and part.keys().isdisjoint(OTHERS) and set(map(str, required)) <= listed.keys():
            objects.append(part)
    for part in objects:
        part["additionalProperties"] = False


def _schemas_in_place(part: dict[str, Any]) -> int:
    """Count the schemas inside of a schema that describe the same value."""
    return (len(part["allOf"]) if isinstance(part.get("allOf"), list) else 0) + len(part.keys() & IN_PLACE)


def _is_exact(name: str, number: float) -> bool:
    """Return True if the library keeps a number of a schema; a maximum above all integers of 64 bits becomes theirs."""
    if number >= MOST_NUMBER:
        return name.startswith(("max", "exclusiveMax"))
    return number > LEAST_NUMBER and float(number) == number


def _check_expressions(field: str, expressions: Sequence[str]) -> None:
    """Reject expressions whose repetitions or optional parts would take too long. Raises InvalidInputError."""
    repeats = optional = 0  # of what repeats, and parts that may be empty: all together
    for expression in expressions:
        if re.search(r"\(\?[a-zA-Z]*x", expression):
            raise InvalidInputError(field, "the flag x is not supported; write the expression without comments")
        inside, last = [1], 1  # most repeats in each open group, and of the part before
        before = ""
        for part in PARTS.finditer(expression):
            is_sign = part[0] in ("*", "?") and before != "("  # not that of (?:
            optional += is_sign or part[1] == "0" or (part[0] in ("|", ")") and before in ("(", "|", ":", ">"))
            before = part[0]
            if part[0] == "(":
                inside.append(1)
                continue
            if part[1] is not None:
                count = max(1, int(part[1]), int(part[2] or 0))
                repeats += last * count if last > 1 else 0
                last *= count
            else:
                last = inside.pop() if part[0] == ")" and len(inside) > 1 else 1
            inside[-1] = max(inside[-1], last)
        if repeats > MOST_REPEATS:
            problem = f"repetitions of repetitions make {repeats:,}, at most {MOST_REPEATS:,} are allowed; simplify it"
            raise InvalidInputError(field, problem)
    if optional > MOST_OPTIONAL:
        raise InvalidInputError(field, f"{optional:,} parts may be empty, at most {MOST_OPTIONAL:,} are allowed; simplify it")


def _fault(matcher: LLMatcher) -> str:
    """Return the library's message in one line, for expressions without their text; empty if there is no fault."""
    text = matcher.get_error().partition("<state>")[0]
    found = re.search(r"^error: (.*)", text, re.MULTILINE)
    if "NoExtension" in text:
        return "no text keeps its rules"
    return " ".join((found[1] if found else text).split())[:ERROR_CHARACTERS]
