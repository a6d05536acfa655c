"""Which strings look like text."""

import pytest

from triptych_documents.formats.keys import is_text


@pytest.mark.parametrize(
    "text",
    [
        "Save",
        "save",
        "OK",
        "Hello, {name}!",
        "%d files",
        "<b>Save</b>",
        "Not found.",
        "(optional)",
        "Don't",
        "e-mail",
        "保存",
        "U.S. only",
        "12:30 Uhr",
        "Log in…",
        "«Ja»",
        "Terms of use: https://example.org",
    ],
)
def test_text(text: str) -> None:
    assert is_text(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "  ",
        "x",
        "42",
        "{count}",
        "snake_case",
        "camelCase",
        "my-class-name",
        "https://a.de/b",
        "a@b.de",
        "README.md",
        "#fff",
        "src/main.ts",
        "v1.2",
        "rgba(0, 0, 0, .5)",
        "2024-01-01",
        "en-US",
        "application/json",
        "...",
        "<br/>",
    ],
)
def test_no_text(text: str) -> None:
    assert not is_text(text)
