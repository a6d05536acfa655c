"""Comparison of numbers."""

import pytest

from triptych_documents.translation.checking import missing_numbers

CASES = [  # source, target, languages, lacking, beside
    ("1,234.5 and 7", "7 und 1.234,5", ("en", "de"), [], []),
    ("1,234", "1.234", ("en-GB", "deu_Latn"), [], []),
    ("1,234", "1\u00a0234", ("en", "fr"), [], []),
    ("3.141", "3,141", ("en", "de"), [], []),
    ("4.8.5 and 1,234,567", "4.8.5 und 1.234.567", ("en", "de"), [], []),
    ("٤.٨.٥", "4.8.5", ("ar", "en"), [], []),
    ("4.8.5", "4.8,5", ("en", "de"), ["4.8.5"], ["4.8,5"]),
    ("3.141", "3141", ("en", "de"), ["3.141"], ["3141"]),
    ("1.234,5", "1,234.5", ("de", "en"), [], []),
    ("1,234,567.89", "1.234.567.89", ("en", "de"), ["1,234,567.89"], ["1.234.567.89"]),
    ("12,345.67", "12.345.67", ("en", "de"), ["12,345.67"], ["12.345.67"]),
    ("3.5", "3,5", ("", ""), [], []),
    ("3 3", "3", ("en", "de"), ["3"], []),
    ("3", "3 4", ("en", "de"), [], ["4"]),
    ("٣", "3", ("ar", "en"), [], []),
    ("no number", "keine", ("en", "de"), [], []),
]


@pytest.mark.parametrize(("source", "target", "languages", "lacking", "beside"), CASES)
def test_missing_and_additional_numbers(
    source: str, target: str, languages: tuple[str, str], lacking: list[str], beside: list[str]
) -> None:
    assert missing_numbers(source, target, languages) == (lacking, beside)
