"""HTML reader."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triptych_documents.errors import DocumentError
from triptych_documents.format import Document, ReadOptions
from triptych_documents.formats.html.tokens import masked, templates, tokens
from triptych_documents.unit import Code, Role

from .roundtrips import mirrored, read, shown, swapped, texts, translated

PAGE = """\
<!DOCTYPE html>
<html lang="en"><head><meta charset=utf-8><title>A &amp; B</title>
<meta name="description" content='It&apos;s "here"'><link rel=x title=no><script>if (a<b) { x("</p>") }</script>
<style>p{}</style></head>
<body class=x>
<!-- c --><p>Hello <b>bold</b> and&nbsp;<a href="x>y" title="The link">link</a>,<br>
  next <img src=a alt="An image"> line &copy 5 < 6 <code>a &lt; b</code>.
<p>Second
<ul><li>One<li>Two <em>x</em></ul>
<pre>code
 here</pre><textarea>foo</textarea>
<input type=submit value=Send><input placeholder='na"me' value=x><button>Go</button><!--[if IE]><p>x</p><![endif]-->
</body></html>
"""


def look(document: Document) -> list[list[object]]:
    """Return texts, and roles and pairs of codes, whose attributes may have changed."""
    return [[piece if isinstance(piece, str) else (piece.role, piece.pair) for piece in unit.pieces] for unit in document.units]


def turned(data: str) -> str:
    """Render with the case of every text swapped, after checking that all changes are reversible."""
    document = read("html", data)
    changed = swapped(document, data.encode())
    again = read("html", changed)
    back = read("html", swapped(again, changed))
    assert texts(again) == ["".join(mirrored([unit.text])) for unit in document.units]
    assert look(back) == look(document)
    return changed.decode()


def test_units_of_a_page() -> None:
    assert shown(read("html", PAGE)) == [
        "A & B",
        'It\'s "here"',
        'Hello ⟦<b>⟧bold⟦</b>⟧ and\xa0⟦<a href="x>y" title="The link">⟧link⟦</a>⟧,⟦<br>⟧ next ⟦<img src=a alt="An image">⟧'
        " line © 5 < 6 ⟦<code>a &lt; b</code>⟧.",
        "The link",
        "An image",
        "Second",
        "One",
        "Two ⟦<em>⟧x⟦</em>⟧",
        "Send",
        'na"me',
        "Go",
    ]


def test_a_page_with_all_its_texts_changed() -> None:
    assert (
        turned(PAGE)
        == """\
<!DOCTYPE html>
<html lang="en"><head><meta charset=utf-8><title>a &amp; b</title>
<meta name="description" content='iT&#39;S "HERE"'><link rel=x title=no><script>if (a<b) { x("</p>") }</script>
<style>p{}</style></head>
<body class=x>
<!-- c --><p>hELLO <b>BOLD</b> AND&nbsp;<a href="x>y" title="tHE LINK">LINK</a>,<br> NEXT <img src=a alt="aN IMAGE">\
 LINE © 5 &lt; 6 <code>a &lt; b</code>.
<p>sECOND
<ul><li>oNE<li>tWO <em>X</em></ul>
<pre>code
 here</pre><textarea>foo</textarea>
<input type=submit value="sEND"><input placeholder='NA"ME' value=x><button>gO</button><!--[if IE]><p>x</p><![endif]-->
</body></html>
"""
    )


def test_only_changes_are_rewritten() -> None:
    data = "<p>One &hellip;\n  line<p title='&#x41;'>Two <i>&eacute;\n&amp;</i> three"
    document = read("html", data)
    assert document.render({1: ("B",)}).decode() == data.replace("&#x41;", "B")
    two, opened, inner, closed, three = document.units[2].pieces
    assert document.render({2: (two, opened, inner, closed, " drei")}).decode() == data.replace("three", "drei")
    assert (two, inner, three) == ("Two ", "é &", " three")
    gaps = "{% a %}One\n\n{% b %}\n{% c %}\t{% d %}two"
    [unit] = read("html", gaps).units
    assert read("html", gaps).render({0: (*unit.pieces[:-1], "zwei")}).decode() == gaps.replace("two", "zwei")


@pytest.mark.parametrize(
    ("data", "wanted"),
    [
        ("<p>a <b>b <i>c</b> d</i> e", ["a ⟦<b>⟧b ⟦<i>⟧c⟦</b>⟧ d⟦</i>⟧ e"]),
        ("a</b> c", ["a⟦</b>⟧ c"]),
        ("text", ["text"]),
        ("<td>a<td>b<tr><th>c", ["a", "b", "c"]),
        ("<dl><dt>a<dd>b</dl>c", ["a", "b", "c"]),
        ("a<div>b</p>c</div>d", ["a", "b", "c", "d"]),
        ("<p>a <!-- note --> b", ["a ⟦<!-- note -->⟧ b"]),
        ("<p><img src=x> a <br></p>", ["a"]),
        ("<p><a href=x>a</a></p>", ["⟦<a href=x>⟧a⟦</a>⟧"]),
        ("a<wbr>b<br/>c", ["a⟦<wbr>⟧b⟦<br/>⟧c"]),
        ("<my-tag>a</my-tag> b", ["⟦<my-tag>⟧a⟦</my-tag>⟧ b"]),
        ("a <svg><title>t</title></svg> b", ["a ⟦<svg><title>t</title></svg>⟧ b"]),
        ("<script>a</script><style>b</style><svg><text>c</text></svg>", []),
        ("<script>never closed", []),
        ("a <!-- never closed <p>b", ["a"]),
        ("a &# b; <i>c</i> &#; d &#x; <p>e", ["a &# b; ⟦<i>⟧c⟦</i>⟧ &#; d &#x;", "e"]),
        ("a <b", ["a"]),
        ("<![CDATA[a]]><!x><?y>b", ["b"]),
        ("&#32;a&#10;&Tab;", ["a"]),
        ("<p>&nbsp;</p>", ["\xa0"]),
        ("<label>a</label><button>b</button><select><option>c</select>", ["a", "b", "c"]),
        ("", []),
    ],
)
def test_units_and_codes(data: str, wanted: list[str]) -> None:
    assert shown(read("html", data)) == wanted
    turned(data)


@pytest.mark.parametrize(
    ("data", "wanted"),
    [
        ("<p>a <span translate=no>B <b>C</b></span> d", ["a ⟦<span translate=no>B <b>C</b></span>⟧ d"]),
        ('<p>a <i class="x notranslate">B</i>', ['a ⟦<i class="x notranslate">B</i>⟧']),
        ("<div translate=no>A<p>B</p><p translate=yes>c</p></div>d", ["c", "d"]),
        ("a <i translate=no>B <u translate=yes>c</u> D</i>", ["a ⟦<i translate=no>⟧⟦B ⟧⟦<u translate=yes>⟧c⟦</u>⟧⟦ D⟧⟦</i>⟧"]),
        ("<p translate=no>A<p>b", ["b"]),
        ('<dl><dt class="sig sig-object py"><span>open</span>(<em>path</em>)<a title="Link">¶</a></dt><dd>a</dl>', ["a"]),
        ("<p>a <kbd>B</kbd> <samp>C</samp> <var>D</var>", ["a ⟦<kbd>B</kbd>⟧ ⟦<samp>C</samp>⟧ ⟦<var>D</var>⟧"]),
        ("<code translate=yes>a</code>", ["⟦<code translate=yes>⟧a⟦</code>⟧"]),
        ("<img translate=no alt=A><img alt=b>", ["b"]),
    ],
)
def test_untranslatable_content(data: str, wanted: list[str]) -> None:
    assert shown(read("html", data)) == wanted
    turned(data)


def test_untranslated_text_around_translated_text_keeps_its_place() -> None:
    [unit] = read("html", "<p translate=no>A <u translate=yes>b</u>. C <u translate=yes>d</u></p>").units
    assert [code.raw for code in unit.codes if code.fixed] == [". C "]  # that at the start is outside of the unit


def test_white_space_of_translated_pre_stays() -> None:
    [unit] = read("html", "<pre translate=yes>a\n  b</pre>").units
    assert unit.pieces == ("a\n  b",)
    assert unit.keeps_space
    assert translated("html", "<pre translate=yes>a\n  b</pre>", "c\n  d") == "<pre translate=yes>c\n  d</pre>"


def test_codes_show_what_a_reader_sees() -> None:
    [unit] = read(
        "html", "a<br>b<code>x &lt;\n y</code>c<math><mi>z</mi></math>d<svg><text>t</text></svg>{{ v }}{% if a > b %}e"
    ).units
    assert [(code.shown, code.fixed) for code in unit.codes] == [
        ("\n", True),
        ("x < y", False),
        ("z", False),
        ("", False),
        ("{{ v }}", False),
        ("", True),
    ]


def test_no_text_moves_across_branches_of_templates() -> None:
    inert = "{% include x %} {% form %} {{ ended }} {{ iffy }} {# if #} <%= if %> <?= end ?> <% include x %> <?php echo 1 ?>"
    branches = (
        "{% if x %} {%- elif y %} {% else %} {% endif %} {% for x in y %} <% if x %> <% } %> <?php if (x): ?> <?php endif ?>"
        " {{#if x}} {{else}} {{/if}} {{ if .x }} {{^x}} {% block x %} {% blocktranslate count n=x %} {% plural %}"
    )
    [unit] = read("html", f"a {inert} b {branches} c").units
    texts = [code.raw for code in unit.codes if code.fixed]
    assert " ".join(texts) == branches


@pytest.mark.parametrize(
    "template",
    [
        '{{ a | b("<p>") }}',
        "{% if a > b %}",
        "{# <p> #}",
        "<% if a > b %>",
        "<%= '<p>' %>",
        '<?php echo "->"; ?>',
        "{{{ raw }}}",
    ],
)
def test_templating_is_a_code(template: str) -> None:
    data = f'<p title="x {template} y">a {template} b'
    assert [[unit.text, unit.codes[0].raw] for unit in read("html", data).units] == [["x  y", template], ["a  b", template]]
    turned(data)


@pytest.mark.parametrize(
    ("tag", "wanted"),
    [
        ("<input type=SUBMIT value='a'>", ["a"]),
        ("<input type=text value='a'>", []),
        ("<option label=a value=b>", ["a"]),
        ("<table summary='a'>", ["a"]),
        ("<meta property='og:title' content=a>", ["a"]),
        ("<meta name=viewport content=a>", []),
        ("<a title=a title=b>", ["a"]),
        ("<i aria-label = a>", ["a"]),
        ("<i title>", []),
        ("<i TITLE=' a '>", ["a"]),
        ("<html title=a>", ["a"]),
    ],
)
def test_visible_attributes_are_units(tag: str, wanted: list[str]) -> None:
    assert texts(read("html", tag)) == wanted
    turned(tag)


def test_an_attribute_inside_of_a_unit_changes_with_it_and_without_it() -> None:
    document = read("html", 'a <a title="t" href="#">b</a>')
    a, opened, b, closed = document.units[0].pieces
    assert document.render({1: ("T",)}) == b'a <a title="T" href="#">b</a>'
    both = {0: (opened, "B", closed, " A"), 1: ("T",)}
    assert document.render(both) == b'<a title="T" href="#">B</a> A'
    assert (a, b) == ("a ", "b")


class TestLanguage:
    def test_the_language_is_updated(self) -> None:
        german = ReadOptions(target_language="de")
        data = "<html lang='en' xml:lang=en><p>a</html>"
        assert translated("html", data, "b", options=german) == "<html lang='de' xml:lang=de><p>b</html>"
        assert read("html", data, german).render({}).decode() == data

    def test_a_matching_or_unknown_language_stays(self) -> None:
        assert translated("html", "<html lang=de-AT>a", "b", options=ReadOptions(target_language="de")) == "<html lang=de-AT>b"
        assert translated("html", "<html lang=en>a", "b") == "<html lang=en>b"
        template = "<html lang='{{ code }}'><p lang=en>a"
        assert translated("html", template, "b", options=ReadOptions(target_language="de")) == template[:-1] + "b"

    @pytest.mark.parametrize(
        ("data", "source", "wanted"),
        [
            ("<html lang=en><p lang=fr title=A>B<p lang=en-GB>c <q lang=fr>D</q>", "", ["c ⟦<q lang=fr>D</q>⟧"]),
            ("<html lang=de><p lang=de>a<p xml:lang=en>b<p lang=fr>C", "en", ["a", "b"]),
            ("<p lang=fr>A<p lang=en>b<p lang=fr translate=yes>c", "en", ["b", "c"]),
            ("<p lang=fr>a", "", ["a"]),
            ("<div lang=en>a<p lang=fr>B", "eng_Latn", ["a"]),
        ],
    )
    def test_elements_in_another_language_stay(self, data: str, source: str, wanted: list[str]) -> None:
        assert shown(read("html", data, ReadOptions(source_language=source))) == wanted


class TestEncoding:
    @pytest.mark.parametrize(
        ("head", "encoding"),
        [
            ("<meta charset=windows-1251>", "cp1251"),
            ('<meta http-equiv="Content-Type" content="text/html; charset=KOI8-R">', "koi8-r"),
            ('<?xml version="1.0" encoding="iso-8859-5"?>', "iso8859-5"),
            ("\ufeff", "utf-8"),
            ("\ufeff", "utf-16-le"),
            ("", "utf-8"),
        ],
    )
    def test_the_declared_encoding_is_used(self, head: str, encoding: str) -> None:
        data = f"{head}<p>да".encode(encoding)
        document = read("html", data)
        assert texts(document) == ["да"]
        assert document.render({0: ("нет €",)}).decode(encoding).replace("&#8364;", "€") == f"{head}<p>нет €"

    def test_latin_1_means_windows_1252(self) -> None:
        assert texts(read("html", b"<meta charset=iso-8859-1>\x93a\x94")) == ["“a”"]
        assert texts(read("html", b"<meta charset=iso-8859-1>a \x81")) == ["a \x81"]

    def test_unencodable_characters_become_references(self) -> None:
        changed = read("html", b"<meta charset=us-ascii><p title=a>b").render({0: ("ж",), 1: ("日€",)})
        assert changed == b'<meta charset=us-ascii><p title="&#1078;">' + "&#26085;€".encode("cp1252")

    def test_lone_surrogates_are_rejected(self) -> None:
        with pytest.raises(DocumentError):
            read("html", "a").render({0: ("\ud800",)})


@pytest.mark.parametrize(
    "text",
    ["{{ a }}", "{%", "<b>x</b>", "&amp;", "&lt", "{", "a {{{", "<?php", "<!--", "\xa0", "a\r\nb", "<% %>", "&#x41;", "'\""],
)
def test_text_that_looks_like_markup_stays_text(text: str) -> None:
    for data in (
        "<p>Hello {{ x }}</p>",
        "<p title='Hello {{ x }}'>",
        '<i title="Hello {{ x }}">',
        "<title>Hello {{ x }}</title>",
    ):
        document = read("html", data)
        code = document.units[0].codes[0]
        again = read("html", document.render({0: (f"a{text}", code, f"{text}b")}))
        first, same, last = again.units[0].pieces
        assert (first, same, last) == (
            f"a{text}".replace("\r\n", " "),
            Code(code.raw, Role.ALONE, code.pair, code.shown),
            f"{text}b".replace("\r\n", " "),
        )


TAGS = "<p> <b> </b> <i> </i> <br> <li> </div> <code> </code> <a> </a> <script> </script> <pre> </pre> <u> </u> </span>"
TEXTS = "{{x}} {%y%} &# &#; &x; a C. &amp; &nbsp; < > <!-- --> <!--c-->"
WITH_ATTRIBUTES = ("<i title='t'>", "<div translate=no>", "<span class=notranslate>", "<u translate=yes>", "<img alt=z>")
PARTS = st.sampled_from([" ", "\n", "<a href='>'>", *TAGS.split(), *TEXTS.split(), *WITH_ATTRIBUTES])


@given(st.lists(PARTS, max_size=20).map("".join))
def test_any_markup_round_trips(data: str) -> None:
    turned(data)
    hidden = templates(data)
    found = tokens(masked(data, hidden))
    assert "".join(data[token.start : token.end] for token in found) == data


@given(st.text(st.characters(exclude_categories=["Cs", "Cc"]) | st.sampled_from("\n\t&<>{}%'\";#a"), min_size=1))
def test_any_text_round_trips(text: str) -> None:
    wanted = re.sub("[ \t\n]+", " ", text).strip(" ")
    for data in ("<p>Hello</p>", "<b title='Hello'>", '<b title="Hello">', "<b title=Hello>"):
        found = texts(read("html", translated("html", data, text)))
        assert found == ([wanted] if wanted else [])


MARKUP_LIKE = (
    "<!-- ¦ <a  ¦ <a b=' ¦ <a b=\" ¦ </a  ¦ <? ¦ <% ¦ {{ ¦ <![CDATA[ ¦ <! ¦ & ¦ < ¦ <b> ¦ <b><p> ¦ <span translate=no> ¦ "
    "<img alt=b> ¦ <li>"
)


@pytest.mark.parametrize("part", MARKUP_LIKE.split(" ¦ "))
@pytest.mark.full
def test_time_is_linear(part: str) -> None:
    """No time is measured: of a square it would take minutes."""
    document = read("html", f"a{part * 50_000}>b")
    assert document.render({index: mirrored(unit.pieces) for index, unit in enumerate(document.units)})


@pytest.mark.parametrize(
    ("page", "text", "written"),
    [
        ("<p>a</p>", "{n, plural, one {# Datei}}", "{n, plural, one {# Datei}}"),
        ("<p>a</p>", "{{x}} {# {% {", "&#123;{x}} &#123;# &#123;% &#123;"),
        ("<p>a</p>{{y}}", "{# {{ {", "{# &#123;{ &#123;"),
        ("<p>a</p>{% y %}", "{# {{ {% {", "&#123;# &#123;{ &#123;% &#123;"),
        ("<p>a</p>#}", "{# {", "&#123;# &#123;"),
    ],
)
def test_braces_are_escaped_only_in_templating(page: str, text: str, written: str) -> None:
    changed = translated("html", page, text)
    assert changed == page.replace("<p>a", f"<p>{written}")
    assert texts(read("html", changed))[0] == text
