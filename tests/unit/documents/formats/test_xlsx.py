"""XLSX reader."""

from functools import partial

import pytest

from triptych_documents.errors import DamagedDocumentError
from triptych_documents.format import ReadOptions
from triptych_documents.formats.xlsx import read

from .office import changed, member, units_of, xlsx, zipped

BOLD = "<r><rPr><b/></rPr><t{}>{}</t></r>"


units = partial(units_of, read)


def test_shared_texts_are_read() -> None:
    kept = ' xml:space="preserve"'
    rich = f"<si><r><t{kept}>I have a </t></r>{BOLD.format('', 'dog')}<r><t{kept}> at home.</t></r></si>"
    strings = (
        f"<si><t{kept}> One_x000D_\nTwo </t></si>{rich}<si><t/></si><si><t>base</t><rPh sb='0' eb='1'><t>ruby</t></rPh></si>"
    )
    assert units(xlsx(strings)) == ["One\nTwo", "I have a {1dog}1 at home.", "base"]
    written = member(changed(read(xlsx(strings), ReadOptions())), "xl/sharedStrings.xml")
    assert f"<si><t{kept}> ONE\nTWO </t></si><si><r><t{kept}>I HAVE A </t></r>{BOLD.format('', 'DOG')}<r>" in written
    assert "<si><t/></si><si><t>BASE</t></si>" in written


def test_texts_in_cells_comments_and_drawings_are_read() -> None:
    cells = '<c t="inlineStr"><is><t>A cell</t></is></c><c><f>A1</f><v>3</v></c><c t="str"><v>computed</v></c>'
    parts = {
        "xl/comments1.xml": ("comments", "<comment><text><r><t>A comment</t></r></text></comment>"),
        "xl/drawings/drawing1.xml": ("drawing", "<a:p><a:r><a:t>A box</a:t></a:r></a:p>"),
    }
    assert units(xlsx("<si><t>Shared</t></si>", cells, parts)) == ["Shared", "A cell", "A comment", "A box"]


def test_names_of_columns_stay() -> None:
    columns = '<tableColumns><tableColumn name="Price"/><tableColumn name="Two_x000a_lines"/></tableColumns>'
    strings = "".join(f"<si><t>{text}</t></si>" for text in ("Price", "Two\nlines", "Price of all"))
    assert units(xlsx(strings, parts={"xl/tables/table1.xml": ("table", columns)})) == ["Price of all"]


SHEET = """{}<dataValidations>
<dataValidation type="whole" errorTitle='Not "valid"' prompt="A &amp; B"><formula1>1</formula1></dataValidation>
<dataValidation type="list" sqref="B2"><formula1>"In progress,Say &quot;"yes&quot;", 1"</formula1></dataValidation>
<dataValidation type="list"><formula1>$A$1:$A$3</formula1></dataValidation></dataValidations>
<headerFooter><oddHeader>&amp;LSales &amp;&amp; more&amp;C&amp;"Arial,Bold"&amp;10Report</oddHeader>
<oddFooter>Page &amp;P</oddFooter></headerFooter>"""


@pytest.mark.parametrize("cells", ["", '<c t="inlineStr"><is><t>A cell</t></is></c>'])
def test_validation_and_pages_of_sheets_are_read(cells: str) -> None:
    data = xlsx("", SHEET.format(cells))
    assert units(data)[cells != "" :] == [
        'Not "valid"',
        "A & B",
        'In progress{1:}Say "yes"{2:} 1',
        "{1:}Sales & more{3:}{5:}{7:}Report",
        "Page {1:2}",
    ]
    sheet = member(changed(read(data, ReadOptions())), "xl/worksheets/sheet1.xml")
    for text in (
        'errorTitle=\'NOT "VALID"\' prompt="A &amp; B"',
        '<formula1>"IN PROGRESS,SAY ""YES"", 1"</formula1>',
        '>&amp;LSALES &amp;&amp; MORE&amp;C&amp;"Arial,Bold"&amp;10REPORT<',
        "<oddFooter>PAGE &amp;P<",
    ):
        assert text in sheet


@pytest.mark.parametrize(("place", "text"), [(0, "x" * 33), (2, "x" * 300), (2, "a, b")])
def test_texts_that_excel_would_not_read_stay(place: int, text: str) -> None:
    data = xlsx("", SHEET.format(""))
    document = read(data, ReadOptions())
    pieces = [text if isinstance(piece, str) else piece for piece in document.units[place].pieces]
    assert member(document.render({place: pieces}), "xl/worksheets/sheet1.xml") == member(data, "xl/worksheets/sheet1.xml")


def test_digits_do_not_change_the_font_size_before_them() -> None:
    document = read(xlsx("", SHEET.format("")), ReadOptions())
    pieces = ["2026 & 10" if isinstance(piece, str) else piece for piece in document.units[3].pieces]
    sheet = member(document.render({3: pieces}), "xl/worksheets/sheet1.xml")
    assert '>&amp;L2026 &amp;&amp; 10&amp;C&amp;"Arial,Bold"&amp;10 2026 &amp;&amp; 10<' in sheet


def test_damaged_workbooks_are_rejected() -> None:
    with pytest.raises(DamagedDocumentError, match="no Excel workbook"):
        read(zipped({"a.txt": "text"}), ReadOptions())
