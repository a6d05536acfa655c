"""Wrapped paragraphs in texts whose line ends are significant."""

import pytest

from triptych_documents.translation.wrapped_lines import WrappedLines
from triptych_documents.unit import Code, Role

PARAGRAPH = """
  A line that is as wide as the paragraph in which it is
  and that continues on the next line and on the last one
  of them.
"""
BOLD, END = Code("<b class='wide'>", Role.OPEN, 0), Code("</b>", Role.CLOSE, 0)


def test_a_wrapped_paragraph_is_one_line_and_wrapped_again() -> None:
    text = f"{PARAGRAPH}\n- An item\n- Another item {{x}}\n"
    lines = WrappedLines((text,))
    joined = "\n  " + " ".join(PARAGRAPH.split()) + "\n\n- An item\n- Another item {x}\n"
    assert lines.pieces == (joined,)
    assert lines.written((joined,)) == (text,)
    assert lines.written((joined.replace("A line", "This is a long line"),)) == (
        "\n  This is a long line that is as wide as the paragraph in\n  which it is and that continues on the next line and on"
        "\n  the last one of them.\n\n- An item\n- Another item {x}\n",
    )
    assert lines.written(("One line",)) == ("One line",)


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_codes_and_line_ends_stay(end: str) -> None:
    lines = WrappedLines(
        (f"A sentence in which there are{end}some ", BOLD, "words that are emphasized", END, f"{end}in a line.")
    )
    joined = ("A sentence in which there are some ", BOLD, "words that are emphasized", END, " in a line.")
    assert lines.pieces == joined
    target = ("In some lines, there are ", BOLD, "emphasized words and others in a sentence", END, " of it.")
    assert lines.written(target) == (
        f"In some lines, there are{end}",
        BOLD,
        f"emphasized words and others in a{end}sentence",
        END,
        " of it.",
    )


@pytest.mark.parametrize(
    "held", ["{n, one} <a b c> `d e` [f](g h)", "{n, plural, one {{who} has # file} other {{who} has # files}}"]
)
def test_placeholders_and_tags_are_not_broken(held: str) -> None:
    lines = WrappedLines(("A sentence that continues on the next line of the text\nand ends there.",))
    target = f"A sentence of the text that continues on the next {held}"
    assert lines.written((target,)) == (target.replace(" {n", "\n{n"),)


@pytest.mark.parametrize(
    "text",
    [
        "Sesame Street 42\n12345 Any City",
        "You can view the details and the status of your order at\n{url}",
        "    $first(a, b: 2, c: 3, d: 4, e: 5, f: 6, g: 7, h: 8)\n    $second(a, b: 2, c: 3, d: 4, e: 5, f: 6, g: 7, h)",
        "The first sentence ends at the end of the line, of course.\nThe second sentence ends at the end of a line, too.",
        "Use one of these options of the command for the document:\n  --all    Build all files, not only those that are new",
        "A line that is as wide as the paragraph in which it is\n\nand another paragraph that is as wide as the first one",
        "A line that is as wide as the paragraph in which it is\n- and an item that is as wide as the paragraph before it",
    ],
)
def test_other_lines_stay_apart(text: str) -> None:
    assert WrappedLines((text,)).pieces == (text,)
