"""Generated units, and the invariants of their translations."""

from collections import Counter
from collections.abc import Sequence

from hypothesis import strategies as st

from triptych_documents.unit import Code, Piece, Role, Unit, joined, nests

HOLDERS = ("{name}", "{0}", "%s", "%d", "%1$s", "%(who)s", "${path}", "{{ x }}", "https://ex.org/a?b=c", "a.b@ex.org")
HOLDERS += ("`ls -l`", "--force", "/etc/hosts", "foo_bar", "&nbsp;", "%%", "{n, plural, one {# file} other {# files}}")
HOLDERS += ("``a b``", "|name|", "[1]_", "x^2", "YYYY-MM-DD", "@@view", ":class:`a`")
NUMBERS = ("3", "1,234.5", "2021", "5:30", "50 %.", "7")
WORDS = ("Open", "the", "file", "and", "print", "it", "Settings", "über", "cafe\u0301", "日本", "don't", "x")
WORDS += ("a line of words that is as wide as others in a paragraph\nand",)
SIGNS = (".", ",", ":", "!", "?", ". ", " (", ") ", '"', " - ", "…", "\n", "\t", "  ", "\u00a0")
SIGNS += ("\n- ", "1.2 The", "*", "~~", "::\n", "[", "](http://a.b)")
TAGS = ("<b>", "</b>", "<br/>", "<i>", "</i>", "<file>", "🎉", "👩‍👧", "❤️", "1️⃣", "♪", " • ")

words = st.sampled_from(WORDS)
spaces = st.sampled_from((" ", " ", " ", "", "  ", "\n"))
separators = st.sampled_from((" ", " ", ", ", " (", ") ", ' "', '" ', ": ", ". ", "\n"))
holders = st.tuples(separators, st.sampled_from(HOLDERS), separators).map("".join)
texts = st.lists(
    st.one_of(words, words, words, holders, st.sampled_from(SIGNS), st.sampled_from(NUMBERS), st.sampled_from(TAGS)), max_size=8
).flatmap(lambda parts: st.lists(spaces, min_size=len(parts), max_size=len(parts)).map(lambda gaps: woven(parts, gaps)))


def woven(parts: Sequence[str], gaps: Sequence[str]) -> str:
    return "".join(part + gap for part, gap in zip(parts, gaps, strict=True))


@st.composite
def units(draw: st.DrawFn, crossing: bool = False) -> Unit:
    """Generate text with codes: nested pairs, or crossing ones."""
    found: list[Piece] = []
    opened: list[int] = []
    for number in range(draw(st.integers(0, 8))):
        kind = draw(st.sampled_from(("text", "text", "text", "open", "close", "alone", "shown", "space", "fixed")))
        if kind == "text":
            found.append(draw(texts))
        elif kind == "open":
            opened.append(number)
            found.append(Code(f"<{number}>", Role.OPEN, number))
        elif kind == "close" and opened:
            pair = opened.pop(draw(st.integers(0, len(opened) - 1)) if crossing else -1)
            found.append(Code(f"</{pair}>", Role.CLOSE, pair))
        elif kind not in ("open", "close"):
            shown = {"alone": "", "shown": draw(st.sampled_from(("ls -l", "f()", "Ctrl"))), "space": " ", "fixed": "\n"}[kind]
            found.append(Code(f"<{kind}{number}/>", Role.ALONE, number, shown, kind == "fixed"))
    found += [Code(f"</{pair}>", Role.CLOSE, pair) for pair in reversed(opened)]
    return Unit(joined(found), "here", keeps_space=draw(st.booleans()))


def assert_conserved(unit: Unit, pieces: Sequence[Piece]) -> None:
    """Check that each code, placeholder and tag is there once, and that pairs open before they close."""
    codes = [piece for piece in pieces if isinstance(piece, Code)]
    assert Counter(codes) == Counter(unit.codes)
    assert tuple(pieces) == joined(pieces)
    place = {(code.pair, code.role): index for index, code in enumerate(codes) if code.role is not Role.ALONE}
    for (pair, role), index in place.items():
        assert role is Role.CLOSE or index < place[pair, Role.CLOSE]
    said, written = "".join(piece for piece in pieces if isinstance(piece, str)), unit.text
    for holder in (*HOLDERS, *TAGS):
        assert said.count(holder) == written.count(holder), holder
    fixed = [code for code in unit.codes if code.fixed]
    assert [code for code in codes if code.fixed] == fixed
    assert nests((code.role, code.pair) for code in codes) or not nests((code.role, code.pair) for code in unit.codes)
