"""Rules for generated texts: which tokens may follow."""

import json
from itertools import count

import pytest
from llguidance import LLParserLimits
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers

from triptych_serving.decoding.grammar import MOST_CHARACTERS, Grammar, GrammarCompiler
from triptych_serving.decoding.logits_processor import Ints
from triptych_serving.errors import InvalidInputError
from triptych_serving.text.vocabulary import Vocabulary

END = 0
SURFACES = [b"", *(bytes([byte]) for byte in range(1, 128)), b"ab", b'{"', b'":', b"]x"]
PIECES = {"<end>": 0} | {surface.decode(): token for token, surface in enumerate(SURFACES) if token}
VOCABULARY = Vocabulary(SURFACES)


@pytest.fixture(scope="module", params=["plain", "begins with a space"])
def compiler(request: pytest.FixtureRequest) -> GrammarCompiler:
    tokenizer = Tokenizer(models.WordLevel(PIECES, unk_token="<end>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    if request.param != "plain":
        tokenizer.normalizer = normalizers.Prepend(" ")
    return GrammarCompiler(VOCABULARY, len(SURFACES), (END,), tokenizer)


def next_of(grammar: Grammar, text: str) -> set[bytes]:
    """Return the tokens that may follow a text, written byte by byte; empty for the end."""
    return surfaces(grammar.copy().next_tokens([*text.encode()]))


def surfaces(tokens: Ints) -> set[bytes]:
    return {SURFACES[token] for token in tokens.tolist()}


def test_tokens_of_several_bytes_count_as_their_bytes(compiler: GrammarCompiler) -> None:
    grammar = compiler.compile("regex", "a(b|c{2})?")
    assert next_of(grammar, "") == {b"a", b"ab"}
    assert next_of(grammar, "a") == {b"b", b"c", b""}
    assert next_of(grammar, "ac") == {b"c"}
    assert next_of(grammar, "ab") == {b""}


def test_json_follows_its_schema(compiler: GrammarCompiler) -> None:
    schema = {"type": "object", "properties": {"x": {"enum": [1, 23]}}, "required": ["x"], "additionalProperties": False}
    grammar = compiler.compile("json_schema", json.dumps(schema))
    assert next_of(grammar, "") == {b"{", b'{"'}
    assert next_of(grammar, '{"x": ') == {b"1", b"2"}
    assert next_of(grammar, '{"x": 2') == {b"3"}
    assert next_of(grammar, '{"x": 1}') == {b""}
    grammar.check(list(b'{"x":\n    23}'), is_whole=True)
    with pytest.raises(InvalidInputError, match=r"^json_schema: the text cannot follow it: "):
        grammar.check(list(b'{"x": 3}'), is_whole=True)


LISTED = {"properties": {"a": {"type": "null"}}}


@pytest.mark.parametrize(
    ("schema", "text", "is_valid"),
    [
        (LISTED, '{"a": null}', True),
        (LISTED, "{}", True),
        (LISTED, '{"b": 1}', False),
        ({"type": "array", "items": {"$ref": "#/$defs/properties"}, "$defs": {"properties": LISTED}}, '[{"b": 1}]', False),
        ({"properties": {"properties": LISTED}}, '{"properties": {"b": 1}}', False),
        ({"anyOf": [LISTED, {"type": "null"}]}, '{"b": 1}', False),
        ({**LISTED, "additionalProperties": True}, '{"b": 1}', True),
        ({**LISTED, "patternProperties": {"b": {}}}, '{"b": 1}', True),
        ({**LISTED, "required": ["b"]}, '{"b": 1}', True),
        ({"type": "object", "properties": {}}, '{"b": 1}', True),
        ({"allOf": [LISTED, {"properties": {"b": {"type": "integer"}}, "required": ["b"]}]}, '{"a": null, "b": 1}', True),
        ({**LISTED, "anyOf": [{"properties": {"b": {}}}, {"properties": {"c": {}}}]}, '{"a": null, "b": 1}', True),
        ({"const": LISTED}, json.dumps(LISTED), True),
    ],
)
def test_objects_that_list_properties_have_no_others(
    compiler: GrammarCompiler, schema: dict[str, object], text: str, is_valid: bool
) -> None:
    grammar = compiler.compile("json_schema", json.dumps(schema))
    if is_valid:
        grammar.check(list(text.encode()), is_whole=True)
    else:
        with pytest.raises(InvalidInputError, match="cannot follow it"):
            grammar.check(list(text.encode()), is_whole=True)


def test_numbers_are_exact_up_to_64_bits(compiler: GrammarCompiler) -> None:
    schema = {"type": "integer", "minimum": -(2**63) + 2048, "maximum": 2**64 - 1}
    grammar = compiler.compile("json_schema", json.dumps(schema))
    for number in (-(2**63) + 2048, -1, 2**63 - 1):
        grammar.check(list(str(number).encode()), is_whole=True)
    with pytest.raises(InvalidInputError, match="cannot follow it"):
        grammar.check(list(str(-(2**63) + 2047).encode()), is_whole=True)


def test_one_of_is_any_of(compiler: GrammarCompiler) -> None:
    grammar = compiler.compile("json_schema", '{"oneOf": [{"type": "integer"}, {"type": "number"}]}')
    grammar.check(list(b"12"), is_whole=True)


def test_white_space_ends(compiler: GrammarCompiler) -> None:
    grammar = compiler.compile("json_schema", '{"type": "array", "items": {"type": "null"}}')
    assert {b" ", b"\n"} < next_of(grammar, "[")
    assert next_of(grammar, "[ ") == {b"n", b"]"}
    assert next_of(grammar, "[\n" + " " * 16) == {b"n", b"]"}


def test_a_text_may_begin_again(compiler: GrammarCompiler) -> None:
    grammar = compiler.compile("regex", "abc|xyz")
    assert surfaces(grammar.next_tokens([*b"ab"])) == {b"c"}
    assert surfaces(grammar.next_tokens([])) == {b"a", b"ab", b"x"}
    assert surfaces(grammar.next_tokens([*b"x"])) == {b"y"}


def test_no_token_with_a_space_comes_first_where_texts_drop_it(compiler: GrammarCompiler) -> None:
    grammar = compiler.compile("regex", " ?a b")
    assert surfaces(grammar.copy().next_tokens([])) == {b" ", b"a"}
    assert surfaces(grammar.copy(drops_space=True).next_tokens([])) == {b"a"}
    assert surfaces(grammar.copy(drops_space=True).next_tokens([ord("a")])) == {b" "}
    only = compiler.compile("regex", " a").copy(drops_space=True)
    assert not only.next_tokens([]).size
    with pytest.raises(InvalidInputError, match="texts of this model cannot begin with a space"):
        only.check([], is_whole=True)


def test_parts_without_a_choice_have_the_longest_tokens(compiler: GrammarCompiler) -> None:
    grammar = compiler.compile("json_schema", '{"const": {"abc": 1}}')
    assert b'{"' in next_of(grammar, "")
    assert b'":' in next_of(grammar, '{"abc')


def _all_of(count: int) -> str:
    """Return a schema of a text that many expressions match at once: the library takes seconds for 14, and hours for more."""
    return json.dumps({"allOf": [{"type": "string", "pattern": f".*a{{{index}}}b.*"} for index in range(count)]})


def _chained(count: int) -> str:
    """Return such a schema whose parts refer to each other."""
    parts = {f"d{index}": {"pattern": f".*a{{{index}}}b.*", "$ref": f"#/$defs/d{index + 1}"} for index in range(count)}
    return json.dumps({"$defs": {**parts, f"d{count}": {"type": "string"}}, "$ref": "#/$defs/d0"})


@pytest.mark.parametrize(
    ("field", "rules", "problem"),
    [
        ("json_schema", "{", "it cannot be read: Expecting property name"),
        ("json_schema", "[]", "it cannot be read: Expecting object"),
        ("json_schema", '{"type": "text"}', "Invalid type: text; correct or simplify it"),
        ("json_schema", '{"$ref": "file:///etc/passwd"}', "does not fetch resources"),
        ("json_schema", '{"items":' * 500 + "{}" + "}" * 500, "recursion limit exceeded"),
        ("json_schema", '{"multipleOf": 10007}', "multipleOf: 10007 is too large, all of them multiply to at most 10,000"),
        ("json_schema", '{"allOf": [{"multipleOf": 101}, {"multipleOf": 103}]}', "multipleOf: 101 is too large"),
        ("json_schema", '{"maximum": -1e19, "minimum": -1e300}', "minimum: the number -1e.300 cannot be followed exactly"),
        ("json_schema", '{"enum": [1, {"a": -9223372036854775808}]}', "a: the number -9223372036854775808 cannot be followed"),
        ("json_schema", '{"const": 12345678901234567890123}', "const: the number 12345678901234567890123 cannot be followed"),
        ("json_schema", '{"exclusiveMinimum": 9223372036854775807}', "exclusiveMinimum: the number 9223372036854775807 cannot"),
        ("json_schema", '{"minimum": 9007199254740993}', "use one between -9,007,199,254,740,992 and 9,007,199,254,740,992"),
        ("json_schema", '{"pattern": "(a{500}){500}"}', "repetitions of repetitions make 250,000, at most 2,500 are allowed"),
        ("json_schema", _all_of(14), "it combines more than 8 schemas, in allOf for instance, beside as many patterns"),
        ("json_schema", _chained(14), "it combines more than 8 schemas"),
        ("json_schema", json.dumps({"items": {"pattern": r"\w*" * 3_000}}), "3,000 parts may be empty, at most 1,000"),
        ("json_schema", '{"items": {"x-guidance": {}}}', "x-guidance is not supported; leave it out"),
        ("regex", "((a{20}){20}){20}", "repetitions of repetitions make 8,400"),
        ("regex", "(a{30}){30}(b{50}){50}", "repetitions of repetitions make 3,400"),
        ("regex", "(?x) # [\n(a{500}){500}", "the flag x is not supported"),
        ("regex", r"\w*" * 5_000, "5,000 parts may be empty, at most 1,000 are allowed"),
        ("regex", r"(?:|\w)(\w|)" * 1_100, "2,200 parts may be empty"),
        ("regex", r"\w{0,9}" * 2_000, "2,000 parts may be empty"),
        ("regex", "(", "regex: unclosed group; correct or simplify it"),
        ("regex", "(?=a)", "look-ahead"),
        ("regex", "(" * 5_000 + "a" + ")" * 5_000, "exceed the maximum number of nested parentheses"),
        ("regex", "a" * (MOST_CHARACTERS + 1), "16,385 characters are too long, at most 16,384; shorten it"),
    ],
)
def test_rules_are_rejected(compiler: GrammarCompiler, field: str, rules: str, problem: str) -> None:
    with pytest.raises(InvalidInputError, match=problem) as caught:
        compiler.compile(field, rules)
    assert caught.value.field == field
    assert len(caught.value.problem) < 400
    assert "\n" not in caught.value.problem


def test_repetitions_are_counted(compiler: GrammarCompiler) -> None:
    for regex in (r"(a{50}){50}", r"[(]a{60}[)]{60}", r"\(a{60}\){60}", r"\x{41}{2}", "(a{60}){2}b{60}", "([a-c]{60}|d){40}"):
        compiler.compile("regex", regex)


def test_schemas_may_be_combined_or_have_many_expressions(compiler: GrammarCompiler) -> None:
    kinds = {f"d{index}": {"type": "object", "properties": {"at": {"format": "date-time"}}} for index in range(12)}
    refs = [{"$ref": f"#/$defs/{name}"} for name in kinds]
    for rules in ({"anyOf": refs}, {"properties": dict(zip(kinds, refs, strict=True))}):
        compiler.compile("json_schema", json.dumps({"$defs": kinds, **rules}))
    compiler.compile("json_schema", json.dumps({"allOf": [{"properties": {name: {"type": "null"}}} for name in kinds]}))
    compiler.compile("json_schema", _all_of(2))
    compiler.compile("regex", "|".join(f"(?:number {index})" for index in range(900)))


def test_ends_are_no_parts_of_a_text_and_all_end_it() -> None:
    vocabulary = Vocabulary([b"<end>", *SURFACES[1:]])
    tokenizer = Tokenizer(models.WordLevel(PIECES, unk_token="<end>"))
    grammar = GrammarCompiler(vocabulary, len(SURFACES), (END, 7), tokenizer).compile("regex", '"[^"]{3,}"')
    assert not {END, 7}.intersection(grammar.next_tokens([*b'"abc']).tolist())
    assert grammar.next_tokens([*b'"abc"']).tolist() == [END, 7]


def test_rules_whose_tokens_take_long_end_the_text(compiler: GrammarCompiler, monkeypatch: pytest.MonkeyPatch) -> None:
    times = count(0.0, 0.06)
    monkeypatch.setattr("triptych_serving.decoding.grammar.thread_time", lambda: next(times))
    grammar = compiler.compile("regex", "a*b")
    found = [surfaces(grammar.next_tokens([*b"a" * size])) for size in range(4)]
    assert [b"" in each for each in found] == [False, False, False, True]
    with pytest.raises(InvalidInputError, match="its rules take too long to follow"):
        grammar.check([*b"aaa"], is_whole=True)
    grammar.check([*b"aaa"], is_whole=False)


def test_rules_beyond_the_limits_end_the_text(compiler: GrammarCompiler, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("triptych_serving.decoding.grammar.LIMITS", LLParserLimits(max_items_in_row=100))
    objects = [{"properties": {f"{index}": {"pattern": f"a.*{index}"}}} for index in range(50)]
    grammar = compiler.compile("json_schema", json.dumps({"anyOf": objects}))
    assert surfaces(grammar.next_tokens([*b"{"])) == {b""}
    with pytest.raises(InvalidInputError, match="Current row has"):
        grammar.check([*b"{"], is_whole=True)
