"""TSV reader."""

from triptych_documents.format import ReadOptions

from .roundtrips import read, texts, translated, turned

PLAIN = 'key\ttext\na\t"Quoted" at the front, 5" wide\nb\tother\n'


def test_unbalanced_quotation_marks_are_characters() -> None:
    assert texts(read("tsv", PLAIN, ReadOptions(columns=("text",)))) == ['"Quoted" at the front, 5" wide', "other"]
    turned("tsv", PLAIN)
    assert translated("tsv", PLAIN, "x\ty", 'z "z"\n') == PLAIN.replace("key\ttext", 'x y\tz "z" ')


def test_balanced_quotation_marks_quote_cells() -> None:
    text = 'key\ttext\na\t"two\nlines and ""more"""\n'
    assert texts(read("tsv", text, ReadOptions(columns=("2",), header=True))) == ['two\nlines and "more"']
    turned("tsv", text)
    assert translated("tsv", text, "x\ty") == text.replace("key\t", '"x\ty"\t')
