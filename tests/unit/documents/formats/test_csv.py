"""CSV and TSV readers."""

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triptych_documents.errors import DamagedDocumentError, OptionError
from triptych_documents.format import ReadOptions
from triptych_documents.formats.tabular import sniffed

from .roundtrips import read, texts, translated, turned

TABLE = 'id,name,"long, text"\r\n1, Apple ,"He said ""no"".\r\nTwice."\r\n2,,x"y\r\n\r\n3,"Pear",\n'


def options(*columns: str, header: bool | None = None) -> ReadOptions:
    return ReadOptions(columns=columns, header=header)


def test_cells_are_units() -> None:
    document = read("csv", TABLE)
    assert texts(document) == ["id", "name", "long, text", "1", " Apple ", 'He said "no".\r\nTwice.', "2", 'x"y', "3", "Pear"]
    assert document.units[5].where == "line 2, column 3"
    turned("csv", TABLE)


def test_formulas_stay() -> None:
    assert texts(read("csv", '=SUM(A1:A3),"=""Total: ""&B2",=-A1,= is a sign,== x\n')) == ["= is a sign", "== x"]


def test_columns_are_selected_by_name_or_number() -> None:
    assert texts(read("csv", TABLE, options("name"))) == [" Apple ", "Pear"]
    assert texts(read("csv", TABLE, options("2"))) == ["name", " Apple ", "Pear"]
    assert texts(read("csv", TABLE, options("2", header=True))) == [" Apple ", "Pear"]
    assert texts(read("csv", TABLE, options("long, text", "1"))) == ["1", 'He said "no".\r\nTwice.', "2", 'x"y', "3"]
    assert read("csv", TABLE, options("name")).units[0].where == "line 2, column name"


@pytest.mark.parametrize(
    ("asked", "problem"),
    [
        (options("4"), "columns: no column 4; the table has 3"),
        (options("0"), "columns: no column 0"),
        (options("Name"), "columns: no column 'Name'; the header has id, name, long, text"),
        (options("name", header=False), "columns: 'name' is a name, but `header` says that the table has no header"),
    ],
)
def test_missing_columns_are_rejected(asked: ReadOptions, problem: str) -> None:
    with pytest.raises(OptionError, match=problem):
        read("csv", TABLE, asked)


def test_cells_are_quoted_if_necessary_or_before() -> None:
    changed = translated("csv", TABLE, "1", "Name, alle", "Text", "1", 'ein "Apfel"', "nein")
    assert changed == '1,"Name, alle","Text"\r\n1,"ein ""Apfel""","nein"\r\n' + TABLE[TABLE.index("2,,") :]


def test_the_delimiter_is_detected() -> None:
    assert texts(read("csv", "a;b, c\nd;e\nf;g, h, i\n")) == ["a", "b, c", "d", "e", "f", "g, h, i"]
    assert texts(read("csv", "a\tb, c\nd\te\n")) == ["a", "b, c", "d", "e"]
    assert texts(read("csv", "one cell; with text\nanother\n")) == ["one cell; with text", "another"]
    assert texts(read("csv", "sep=;\na;b,c\n")) == ["a", "b,c"]
    assert texts(read("csv", "sep=^\na^b,c\n^")) == ["a", "b,c"]
    assert translated("csv", "sep=;\na;b\n", "x;y") == 'sep=;\n"x;y";b\n'


@pytest.mark.parametrize("data", ['a,b\n"c,d\n', 'a,b\n"c"d,e\n', 'a,b\nc,"d\n\ne,f'])
def test_unbalanced_quotation_marks_are_rejected(data: str) -> None:
    with pytest.raises(DamagedDocumentError, match=r"^line 2: unbalanced quotation marks"):
        read("csv", data)


@given(
    st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])), min_size=3, max_size=3), st.booleans()
)
def test_any_text_can_be_written(cells: list[str], quoted: bool) -> None:
    mark = '"' if quoted else ""
    changed = translated("csv", f"{mark}a{mark},{mark}b{mark}\nc,d\n", *cells)
    assert list(csv.reader(io.StringIO(changed, newline=""))) == [cells[:2], [cells[2], "d"]]
    again = read("csv", changed) if all(cell.strip() for cell in cells) else None
    assert again is None or texts(again)[:3] == cells or sniffed(changed) != ","  # of so few cells


UNQUOTED = 'key\ttext\na\t"Quoted" at the front, 5" wide\nb\tother\n'


def test_unbalanced_quotation_marks_are_characters_in_tsv() -> None:
    assert texts(read("tsv", UNQUOTED, ReadOptions(columns=("text",)))) == ['"Quoted" at the front, 5" wide', "other"]
    turned("tsv", UNQUOTED)
    assert translated("tsv", UNQUOTED, "x\ty", 'z "z"\n') == UNQUOTED.replace("key\ttext", 'x y\tz "z" ')


def test_balanced_quotation_marks_quote_cells_in_tsv() -> None:
    text = 'key\ttext\na\t"two\nlines and ""more"""\n'
    assert texts(read("tsv", text, ReadOptions(columns=("2",), header=True))) == ['two\nlines and "more"']
    turned("tsv", text)
    assert translated("tsv", text, "x\ty") == text.replace("key\t", '"x\ty"\t')
