"""Markdown reader."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.parser_inline import ParserInline
from mdit_py_plugins.dollarmath import dollarmath_plugin

from triptych_documents.findings import Severity
from triptych_documents.format import ReadOptions
from triptych_documents.formats.markdown.blocks import parsed
from triptych_documents.formats.markdown.tokens import PlacedInline
from triptych_documents.unit import Code, Piece, Role

from .roundtrips import read, shown, swapped, texts, translated, turned

GUIDE = """\
---
layout: Front matter
---
# A *first* heading {#first}

## A closed one ##

Setext
heading
------

This paragraph has `code()`, a [link](https://example.org "Title"), **bold _and_ italic** text,
an ![image of it](image.png), an <https://example.org/a> and <kbd>Ctrl</kbd> keys,{two spaces}
a hard break, AT&amp;T, 2 \\* 3, a footnote[^note], ~~struck~~ text and $x_1 < 2$.

[^note]: A footnote
    of two lines.

- [ ] An open task
- A *list* item
  in two lines
    1. nested <b>item</b><br>here

> [!NOTE]
> A quote that has
> two lines with a [reference], [another one][reference]
> and [reference][].

| Name | Text with \\| pipe |
|------|:-----------------:|
| `a|b` | *two* |
| one |

```python
code = "stays"
```

    indented code

<p align="center">
  Text in <b>HTML</b> with <img alt="Its picture" src="x.png">
</p>

::: warning
Inside a container {{< shortcode "x" >}} here
:::

Term
: Its definition

[reference]: https://example.org/reference
""".replace("{two spaces}", "  ")


def test_units_and_codes() -> None:
    assert shown(read("markdown", GUIDE)) == [
        "A ⟦*⟧first⟦*⟧ heading",
        "A closed one",
        "Setext heading",
        'This paragraph has ⟦`code()`⟧, a ⟦[⟧link⟦](https://example.org "Title")⟧, ⟦**⟧bold ⟦_⟧and⟦_⟧ italic⟦**⟧ text,'
        " an ⟦![⟧image of it⟦](image.png)⟧, an ⟦<https://example.org/a>⟧ and ⟦<kbd>Ctrl</kbd>⟧ keys,⟦  \n⟧"
        "a hard break, AT&T, 2 * 3, a footnote⟦[^note]⟧, ⟦~~⟧struck⟦~~⟧ text and ⟦$x_1 < 2$⟧.",
        "A footnote of two lines.",
        "An open task",
        "A ⟦*⟧list⟦*⟧ item in two lines",
        "nested ⟦<b>⟧item⟦</b>⟧⟦<br>⟧here",
        "A quote that has two lines with a ⟦[⟧reference⟦][reference]⟧, ⟦[⟧another one⟦][reference]⟧"
        " and ⟦[⟧reference⟦][reference]⟧.",
        "Name",
        "Text with | pipe",
        "`a",
        "b`",
        "one",
        "Text in ⟦<b>⟧HTML⟦</b>⟧ with",
        "Its picture",
        'Inside a container ⟦{{< shortcode "x" >}}⟧ here',
        "Term",
        "Its definition",
    ]


def test_codes_show_text_and_breaks_are_fixed() -> None:
    codes = {code.raw: code for code in read("markdown", GUIDE).units[3].codes}
    assert codes["`code()`"].shown == "code()"
    assert codes["<https://example.org/a>"].shown == "https://example.org/a"
    assert codes["<kbd>Ctrl</kbd>"].shown == "Ctrl"
    assert codes["  \n"] == Code("  \n", Role.ALONE, codes["  \n"].pair, "\n", fixed=True)
    assert codes["["].pair == codes['](https://example.org "Title")'].pair
    [unit] = read("markdown", "a {% if x %} [![b](c)](d)\n[![e](f)](g) ![h](i) [j](k) [![l](m) n](o)").units
    fixed = [code.raw for code in unit.codes if code.fixed]
    assert fixed == ["{% if x %}", "[", "![", "](c)", "](d)", "[", "![", "](f)", "](g)", "![", "](i)"]


@pytest.mark.parametrize(
    ("text", "ends"),
    [
        ("![a](1) b", ["](1)"]),
        ("Press ![a](1) or ![b](2)", []),
        ("One ![a](1) ![b](2)\n**![c](3)** and ![d](4)", ["](1)", "](2)", "](3)"]),
        ("One  \n![a](1) b", ["](1)"]),
    ],
)
def test_images_that_stand_apart_belong_to_no_sentence(text: str, ends: list[str]) -> None:
    [unit] = read("markdown", text).units
    assert [code.raw for code in unit.codes if code.fixed and code.raw.startswith("]")] == ends


def test_everything_else_stays() -> None:
    changed = turned("markdown", GUIDE)
    for kept in (
        "---\nlayout: Front matter\n---\n# a *FIRST*",
        "{#first}\n\n## a CLOSED ONE ##\n",
        '](https://example.org "Title")',
        "[^note]: a",
        "- [ ] a",
        "> [!NOTE]\n> a",
        "|------|:-----------------:|",
        '```python\ncode = "stays"\n```',
        "    indented code",
        "::: warning\n",
        "[REFERENCE][reference]",
        "ONE][reference]",
        '<img alt="iTS PICTURE" src="x.png">',
        "\n: iTS",
        "tEXT WITH \\| ",
    ):
        assert kept in changed
    assert changed.endswith("\n[reference]: https://example.org/reference\n")


TABS = """\
=== "A tab"

    Third.

    ```
    text
    ```

===! "More"

    1.  Step

        === "Inner"

            Fourth.
"""


def test_content_tabs_are_text() -> None:
    document = read("markdown", TABS)
    assert [unit.text for unit in document.units] == ["A tab", "Third.", "More", "Step", "Inner", "Fourth."]
    assert turned("markdown", TABS) == TABS.swapcase().replace("TEXT", "text")


def test_admonitions_and_wiki_links_keep_their_marks() -> None:
    text = '!!! note inline "A title"\n    First.\n\n    * Item\n\n??? tip\n    Second.\n\n=== "Tab"\n\nSee [[a b|c]] now\n'
    document = read("markdown", text)
    assert [unit.text for unit in document.units] == ["A title", "First.", "Item", "Second.", "Tab", "See  now"]
    assert turned("markdown", text) == text.swapcase().replace("!!! NOTE INLINE", "!!! note inline").replace(
        "??? TIP", "??? tip"
    ).replace("[[A B|C]]", "[[a b|c]]")


def test_a_link_whose_text_has_brackets_is_no_wiki_link() -> None:
    assert shown(read("markdown", "See [[docs]](https://a.org) now\n")) == ["See ⟦[⟧[docs]⟦](https://a.org)⟧ now"]


def test_attributes_inside_of_text_in_html_blocks_are_written() -> None:
    text = '<p title="A hint">\nHello <img alt="One icon" src="a.png"> there\n</p>\n'
    document = read("markdown", text)
    assert sorted(texts(document)) == ["A hint", "Hello  there", "One icon"]
    changed = swapped(document, text.encode()).decode()
    assert changed == '<p title="a HINT">\nhELLO <img alt="oNE ICON" src="a.png"> THERE\n</p>\n'
    assert not document.findings


MDX = """\
import Tabs from '@theme/Tabs';
import {one, two} from "x"

import './style.css'

export const Mark = ({children}) => (
  <b>{children}</b>
);

export default Layout;

import words from a file

(the-target)=
Some text
"""


def test_statements_of_mdx_and_targets_of_myst_are_no_text() -> None:
    assert texts(read("markdown", MDX)) == ["import words from a file", "Some text"]
    turned("markdown", MDX)


CONTAINERS = """\
:::note The first title

Text one.

:::

> ::: tip[One *other* title]
> Text two.
> :::

:::{admonition} My title
:class: tip
Text three.
:::

::: warning
Text four.
:::

::: {.wide} ::: image src=one
:::
"""


def test_titles_of_containers_are_text() -> None:
    assert texts(read("markdown", CONTAINERS)) == [
        *("The first title", "Text one.", "One other title", "Text two.", "My title", "Text three.", "Text four.")
    ]
    changed = turned("markdown", CONTAINERS)
    assert ":::note tHE FIRST TITLE\n" in changed
    assert "> ::: tip[oNE *OTHER* TITLE]\n" in changed
    assert ":::{admonition} mY TITLE\n:class: tip\ntEXT THREE.\n" in changed


def test_windows_line_ends_stay() -> None:
    changed = turned("markdown", GUIDE.replace("\n", "\r\n"))
    assert changed.count("\r\n") == changed.count("\n")


def test_paragraphs_keep_width_and_line_prefixes() -> None:
    text = "> * An item in a quote, and its lines are broken at sixty or so\n>   characters\n>\n> next\n>\n> Short\n> lines\n"
    longer = "Ein Eintrag in einem Zitat, der viel länger als vorher ist, - 1. was nun? Vieles mehr."
    assert translated("markdown", text, longer, "weiter", "Kurze Zeilen") == (
        "> * Ein Eintrag in einem Zitat, der viel länger als vorher ist, - 1.\n>   was nun? Vieles mehr.\n"
        ">\n> weiter\n>\n> Kurze Zeilen\n"
    )


MARKUP_LIKE = (
    "# no heading ¦ - no item ¦ + x ¦ * x ¦ 1. x ¦ 23) x ¦ > x ¦ ``` ¦ ~~~ x ¦ === ¦ --- ¦ * * * ¦ <div> ¦ <b>x</b> ¦ *x* ¦ "
    "__x__ ¦ a_b_c ¦ `x` ¦ [reference] ¦ [x](y) ¦ ![x](y) ¦ [reference]: x ¦ [^note] ¦ <https://a.b> ¦ &amp; ¦ \\* ¦ $x$ ¦ "
    "$$ ¦ ::: x ¦ : x ¦ a | b ¦ {{< x >}} ¦ {% x %} ¦ {#x} ¦ ~~x~~ ¦ x # ¦ # ¦ x \\ ¦ ! ¦ \xa0x\xa0 ¦ [ ] x ¦ | x | ¦ "
    "a * b * c ¦ snake_case_name ¦ 5 < 6 && 7 > 6 ¦ C:\\dir ¦ 2 * 3 = 6 ¦ [x] y ¦ x\\ ¦ <!-- x --> ¦ a\tb ¦ [!NOTE] ¦ ~ x ¦ %"
)


@pytest.mark.parametrize("text", MARKUP_LIKE.split(" ¦ "))
def test_text_that_looks_like_markup_stays_text(text: str) -> None:
    sources = [
        "One\n",
        "# One\n",
        "- One\n",
        "> One\n> two\n",
        "| One |\n|---|\n| x |\n",
        "One\n===\n",
        "**x** One\n",
        "[^1]: One\n",
    ]
    for source in (f"{source}\n[reference]: x\n" for source in sources):
        document = read("markdown", source)
        unit = document.units[0]
        last = unit.pieces[-1]
        assert isinstance(last, str)
        wanted = (*unit.pieces[:-1], text if len(unit.pieces) == 1 else f" {text}")
        changed = document.render({0: wanted})
        again = read("markdown", changed)
        assert list(again.units[0].pieces) == [
            " ".join(p.split(" ")).replace("\t", " ") if isinstance(p, str) else p for p in wanted
        ]
        assert len(again.units) == len(document.units)


def test_readable_text_is_not_escaped() -> None:
    text = "A snake_case name, 2 * 3 = 6, a < b, [x] (y), {curly}, #1, 100%, AT&T, C:\\dir and a - b"
    assert translated("markdown", "One\n", text) == text + "\n"
    assert translated("markdown", "One\n", "*x* and_ `y`") == "\\*x\\* and\\_ \\`y\\`\n"


STRONG, STRONG_END = Code("**", Role.OPEN, 0), Code("**", Role.CLOSE, 0)
EM, EM_END = Code("*", Role.OPEN, 1), Code("*", Role.CLOSE, 1)


@pytest.mark.parametrize(
    ("pieces", "written"),
    [
        (("x ", STRONG, "Wort:", STRONG_END, " ", EM, "y", EM_END), "x **Wort:** *y*"),
        (("x", STRONG, "Wort:", STRONG_END, "mehr", EM, "y", EM_END), "x**Wort:**&#109;ehr*y*"),
        (("x", STRONG, " Wort ", STRONG_END, " ", EM, "y", EM_END), "&#120;**&#32;Wort&#32;** *y*"),
        ((STRONG, "粗体。", STRONG_END, "字", EM, "y", EM_END), "**粗体。**&#23383;*y*"),
        ((STRONG, "a", STRONG_END, EM, "b", EM_END), "**a***b*"),
    ],
)
def test_emphasis_works_in_any_place(pieces: tuple[Piece, ...], written: str) -> None:
    document = read("markdown", "Some **bold** and *italic* text\n")
    changed = document.render({0: pieces}).decode()
    assert changed == written + "\n"
    again = read("markdown", changed).units[0]
    assert again.text == "".join(piece for piece in pieces if isinstance(piece, str))
    assert [code.role for code in again.codes] == [Role.OPEN, Role.CLOSE, Role.OPEN, Role.CLOSE]


def test_unwritable_translations_keep_the_source() -> None:
    document = read("markdown", "Some **bold** text\n\nOther text\n")
    opened, closed = document.units[0].codes
    assert document.render({0: ("Nothing", opened, closed), 1: ("Anderes",)}) == b"Some **bold** text\n\nAnderes\n"
    [finding] = document.findings
    assert (finding.severity, finding.where) == (Severity.ERROR, "line 1")
    assert document.render({}) == b"Some **bold** text\n\nOther text\n"
    assert not document.findings


def test_links_that_refer_by_text_get_a_label() -> None:
    text = "See [the guide], or ![the guide][].\n\n[the guide]: guide.md\n"
    document = read("markdown", text)
    pieces = tuple(
        piece if isinstance(piece, Code) else piece.replace("the guide", "die Anleitung") for piece in document.units[0].pieces
    )
    assert document.render({0: pieces}).decode().startswith("See [die Anleitung][the guide], or ![die Anleitung][the guide].\n")
    same = tuple(piece if isinstance(piece, Code) else piece.replace("See", "Siehe") for piece in document.units[0].pieces)
    assert document.render({0: same}).decode().startswith("Siehe [the guide], or ![the guide].\n")


def test_a_container_may_end_with_an_empty_quoted_line() -> None:
    assert turned("markdown", "> ::: note\n> Text\n> ") == "> ::: note\n> tEXT\n> "


def test_links_follow_the_anchors_of_headings() -> None:
    source = """\
# *Old* `code`

[a](#old-code) [b](<#old--new-1> "Old & new") [c](#own) [d](x.md#old-code) [e](#caf%C3%A9) [f](#other) `[g](#old-code)`
<a href="#old--new">h</a>

<p><a href='#caf%C3%A9'>Text</a></p>

## Old & new

## Old & new

Old {#own}
----------

## Café

    [i](#old-code)

[j] [k]

[j]: <#old--new> "Old"
> [k]:
  #caf%C3%A9
"""
    document = read("markdown", source)
    german = {"Old": "Alt", "Old & new": "Alt & größer!", "Old ": "Alt ", "Café": "Old & new"}
    changed = {
        index: [german.get(piece, piece) if isinstance(piece, str) else piece for piece in unit.pieces]
        for index, unit in enumerate(document.units)
    }
    written = """\
# *Alt* `code`

[a](#alt-code) [b](<#alt--größer-1> "Old & new") [c](#own) [d](x.md#old-code) [e](#old--new) [f](#other) `[g](#old-code)`
<a href="#alt--größer">h</a>

<p><a href='#old--new'>Text</a></p>

## Alt & größer!

## Alt & größer!

Alt {#own}
----------

## Old & new

    [i](#old-code)

[j] [k]

[j]: <#alt--größer> "Old"
> [k]:
  #old--new
"""
    assert document.render(changed).decode() == written
    latin = read("markdown", "[a](#old)\n\n# Old\n", ReadOptions(encoding="latin-1"))
    assert latin.render({1: ["Große Łodz"]}).decode("latin-1") == "[a](#große-&#322;odz)\n\n# Große &#321;odz\n"


@pytest.mark.full
def test_deep_nesting_is_fast() -> None:
    for text in (
        "> " * 1_000 + "x",
        "[" * 20_000,
        "*a_ " * 500,
        "`" * 2_000,
        "![" * 500,
        "<" * 2_000,
        "- " * 500 + "x",
        "{%" * 500,
    ):
        document = read("markdown", text + "\n")
        assert document.render({}) == text.encode() + b"\n"


WORDS = st.text(st.sampled_from("ab1.-+#>*_`[]()!<&;|\\~$:{}= \n\xa0é"), min_size=1, max_size=12)


@settings(max_examples=8)
@given(st.data())
def test_any_text_can_be_written_around_codes(data: st.DataObject) -> None:
    document = read("markdown", GUIDE)
    index = data.draw(st.integers(0, 10))
    unit = document.units[index]
    pieces = tuple(data.draw(WORDS) if isinstance(piece, str) else piece for piece in unit.pieces)
    again = read("markdown", document.render({index: pieces}))
    assert parsed(again.text).skeleton == parsed(GUIDE).skeleton  # type: ignore[attr-defined]
    assert len(again.units) == len(document.units)
    assert plain(again.units[index].pieces) in (plain(pieces), plain(unit.pieces))


def plain(pieces: Sequence[Piece]) -> str:
    """Return visible text and codes without white space; the character of emphasis is ignored."""
    text = "".join(piece if isinstance(piece, str) else f"\0{piece.raw.replace('_', '*')}\0" for piece in pieces)
    return " ".join(part for part in text.replace("\n", " ").split(" ") if part)


def test_tags_on_their_own_line_keep_it() -> None:
    assert turned("markdown", "<del>\nSome *text*\n</del>\n\nmore\n").startswith("<del>\nsOME *TEXT*")


def test_unencodable_characters_become_references() -> None:
    document = read("markdown", "für *alle*\n\n<p>Größe</p>\n".encode("latin-1"), ReadOptions(encoding="latin-1"))
    opened, closed = document.units[0].codes
    changed = document.render({0: ("für — ", opened, "„alle“", closed), 1: ("Größe → 1",)})
    assert changed == "für &#8212; *&#8222;alle&#8220;*\n\n<p>Größe &#8594; 1</p>\n".encode("latin-1")


def test_titles_of_front_matter_are_translated() -> None:
    data = '---\ntitle: "One page"  # comment\nlayout: some page\ntags: [tag]\nhero:\n  - tagline: Two words\n---\n\nText\n'
    assert texts(read("markdown", data)) == ["One page", "Two words", "Text"]
    assert read("markdown", data).units[1].where == "line 1, hero.0.tagline"
    assert translated("markdown", data, "Eine: Seite") == data.replace("One page", "Eine: Seite")
    plain = "---\r\ntitle: One page\r\n---\r\nText\r\n"
    assert translated("markdown", plain, "Eine: Seite") == plain.replace("One page", '"Eine: Seite"')
    assert translated("markdown", plain, "---") == plain.replace("One page", '"---"')


@pytest.mark.parametrize(
    "front",
    [
        "+++\r\ntitle: x\r\n+++",
        '+++\ntext = """\nA cat.\n...\n"""\n\n[b]\nc = 1\n+++',
        '\n \n+++\ntitle = "x"\n+++',
        "---\n---",
        "---\ntitle: {{ page }} x\n---",
        "---\ntitle: 5\n...",
    ],
)
def test_other_front_matter_is_not_translated(front: str) -> None:
    assert texts(read("markdown", f"{front}\n\nText\n")) == ["Text"]


def test_a_rule_is_no_front_matter() -> None:
    assert texts(read("markdown", "---\r\n\r\ntitle\r\n\r\n" + "more\r\n" * 200))[-2:] == [
        "title",
        " ".join(["more"] * 200),
    ]


def test_units_have_line_numbers() -> None:
    assert [unit.where for unit in read("markdown", "# a\n\nb\nc\n\n- d\n").units] == ["line 1", "line 3", "line 6"]
    assert texts(read("markdown", "")) == []


SIGNS = ["a", "b", "é", "\u00a0", "  ", "\t", "\r", "\0", *".,:;'\"()-=+#|>@/^%}1*&", "www.a.org", "http://a.b/c", "[ ] "]


@given(st.lists(st.sampled_from(SIGNS), min_size=1).map("".join))
def test_the_fast_path_gives_the_same_tokens(content: str) -> None:
    parser = MarkdownIt("commonmark", {"html": True}).enable("strikethrough").use(dollarmath_plugin)
    inline = PlacedInline(parser.inline)
    found, careful = inline.parse(content, parser, {}, []), ParserInline.parse(inline, content, parser, {}, [])
    assert found == careful
