"""PPTX reader."""

from functools import partial

import pytest

from triptych_documents.errors import UnknownFormatError
from triptych_documents.format import ReadOptions
from triptych_documents.formats.pptx import read

from .office import changed, member, pptx, shape, units_of

units = partial(units_of, read)


def test_slides_are_read_in_their_order() -> None:
    assert units(pptx(*(shape(f"Slide {number}") for number in range(1, 13)))) == [f"Slide {number}" for number in range(1, 13)]


def test_runs_that_look_alike_are_one_text() -> None:
    plain, bold = '<a:r><a:rPr lang="{}"/><a:t>{}</a:t></a:r>', '<a:r><a:rPr b="1"/><a:t>{}</a:t></a:r>'
    runs = plain.format("en-US", " A man ") + plain.format("fr-FR", "is riding ") + bold.format("a bicycle") + "<a:br/>"
    runs += '<a:fld type="slidenum"><a:t>3</a:t></a:fld>' + plain.format("en-US", " times")
    data = pptx(f"<a:p><a:pPr/>{runs}<a:endParaRPr/></a:p>")
    assert units(data) == ["A man is riding {1a bicycle}1{2:\n}{3:3} times"]
    slide = member(changed(read(data, ReadOptions(target_language="de"))), "ppt/slides/slide1.xml")
    expected = '<a:p><a:pPr/><a:r><a:rPr lang="de-DE"/><a:t> A MAN IS RIDING </a:t></a:r>'
    expected += '<a:r><a:rPr b="1" lang="de-DE"/><a:t>A BICYCLE</a:t></a:r>'
    assert expected in slide  # a run has room for one text
    assert "<a:endParaRPr/></a:p>" in slide


def test_notes_charts_comments_and_masters_are_read_but_no_prompts() -> None:
    parts = {
        "ppt/notesSlides/notesSlide1.xml": ("notesSlide", shape("A note", "<p:ph/>")),
        "ppt/charts/chart1.xml": ("chart", "<a:p><a:r><a:t>A chart</a:t></a:r></a:p>"),
        "ppt/comments/comment1.xml": ("comments", "<p:text>A comment</p:text>"),
        "ppt/slideLayouts/slideLayout1.xml": ("slideLayout", shape("Click to edit", "<p:ph/>") + shape("On all slides")),
        "ppt/media/other.xml": ("image", shape("unread")),
    }
    found = units(pptx(shape("A title", "<p:ph/>"), parts=parts))
    assert found == ["A title", "A chart", "A note", "A comment", "On all slides"]


def test_other_documents_are_rejected() -> None:
    with pytest.raises(UnknownFormatError, match=r"sheet.main.* is not supported, only PowerPoint presentations"):
        read(pptx("", kind="application/vnd.openxmlformats-officedocument.spreadsheetml.sheet.main+xml"), ReadOptions())


def test_documents_with_macros_are_read() -> None:
    macros = "application/vnd.ms-powerpoint.presentation.macroEnabled.main+xml"
    assert units(pptx(shape("A slide"), kind=macros)) == ["A slide"]
