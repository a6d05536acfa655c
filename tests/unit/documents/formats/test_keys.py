"""Selection of strings by path or appearance."""

import pytest

from triptych_documents.errors import OptionError
from triptych_documents.format import ReadOptions
from triptych_documents.formats.structured.keys import MAX_SHOWN, KeySelection, is_text

from .roundtrips import read

TEXT = (
    "Save ¦ save ¦ OK ¦ Hello, {name}! ¦ %d files ¦ <b>Save</b> ¦ Not found. ¦ (optional) ¦ Don't ¦ e-mail ¦ 保存 ¦ "
    "U.S. only ¦ 12:30 Uhr ¦ Log in… ¦ «Ja» ¦ Terms of use: https://example.org ¦ "
    "hour(s) ¦ {n} item(s) ¦ %(name)sjoined ¦ 启用「%(openSettings)s」 ¦ 若通过GitHub提交"
)


@pytest.mark.parametrize("text", TEXT.split(" ¦ "))
def test_strings_with_words_are_text(text: str) -> None:
    assert is_text(text)


NO_TEXT = (
    " ¦    ¦ x ¦ 42 ¦ {count} ¦ snake_case ¦ camelCase ¦ my-class-name ¦ https://a.de/b ¦ a@b.de ¦ README.md ¦ #fff ¦ "
    "src/main.ts ¦ v1.2 ¦ rgba(0, 0, 0, .5) ¦ 2024-01-01 ¦ en-US ¦ application/json ¦ ... ¦ <br/> ¦ "
    "max(x) ¦ %(userName)s: %(message)s"
)


@pytest.mark.parametrize("text", NO_TEXT.split(" ¦ "))
def test_identifiers_are_not_text(text: str) -> None:
    assert not is_text(text)


def taken(pattern: str, *path: str) -> bool:
    trail = KeySelection(ReadOptions(keys=(pattern,))).root
    for name in path:
        trail = trail.within(name)
    return trail.takes("x")


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("a.b", "a b"),
        ("a", "a b c"),
        ("**", ""),
        ("**", "a"),
        ("**.b", "b"),
        ("**.b", "a a b c"),
        ("a.**.b", "a b"),
        ("a.**.**.b", "a x y b"),
        ("**.a.**.a.b", "a b a x a b"),
        ("*", "a"),
        ("a*c*", "abcd"),
        ("a*c*", "ac"),
        ("*ab*ab", "aabab"),
        (r"a\.b.*", "a.b x"),
    ],
)
def test_matching_patterns(pattern: str, path: str) -> None:
    assert taken(pattern, *path.split())


@pytest.mark.parametrize(
    ("pattern", "path"),
    [("a.b", "a"), ("a.b", "a c"), ("**.b", "a"), ("*.b", "b"), ("*", ""), ("a*a", "a"), ("*ab*ab", "aab"), ("a.b", "a.b")],
)
def test_other_patterns(pattern: str, path: str) -> None:
    assert not taken(pattern, *path.split())


def test_matching_is_fast_for_any_pattern() -> None:
    assert not taken("**." * 100 + "zz", *"x" * 500)
    assert not taken("**.x." * 100 + "zz", *"x" * 500)
    assert not taken("*a" * 100 + "b", "a" * 10_000)


def test_long_paths_are_shown_from_their_end() -> None:
    trail = KeySelection(ReadOptions()).root.within("n" * 1_000_000).within("a.b")
    assert trail.shown() == "..." + "n" * (MAX_SHOWN - len(r".a\.b")) + r".a\.b"
    for _ in range(10_000):
        trail = trail.within("0")
    assert len(trail.shown()) == MAX_SHOWN + 3


@pytest.mark.parametrize("field", ["keys", "skip_keys"])
@pytest.mark.parametrize("pattern", ["", "a..b", ".a", "a."])
def test_an_empty_name_is_rejected(field: str, pattern: str) -> None:
    with pytest.raises(OptionError, match=f"^{field}: .* has an empty name"):
        KeySelection(ReadOptions(**{field: (pattern,)}))


@pytest.mark.parametrize(("name", "data"), [("json", '{"title": "A house"}'), ("yaml", "title: A house\n")])
def test_keys_that_select_nothing_are_a_finding(name: str, data: str) -> None:
    assert not read(name, data, ReadOptions(keys=("title",))).findings
    [finding] = read(name, data, ReadOptions(keys=("titel", "items.*.text"))).findings
    assert finding.message.startswith("no text is selected by titel, items.*.text;")
