"""Search for protected text."""

import pytest

from triptych_documents.rules import Term, TranslationRules
from triptych_documents.segments.protected import PhraseMatcher, ProtectedFinder, ProtectedKind

FOUND = [
    ("Hello {name}, {0:.2f} and {{ user.name }} or ${HOME}", ["{name}", "{0:.2f}", "{{ user.name }}", "${HOME}"]),
    ("%s of %1$s, %(who)s: %-5.2f%% %@ %%", ["%s", "%1$s", "%(who)s", "%-5.2f", "%%", "%@", "%%"]),
    ("%n of %1 %2, %L3 %Ln in %1%2. 50 %1 %, %1%", ["%n", "%1", "%2", "%L3", "%Ln", "%1", "%2"]),
    ("%#@a.files@ in %1$#@the folders@: %arg or %2$arg, 5 % argues", ["%#@a.files@", "%1$#@the folders@", "%arg", "%2$arg"]),
    ("$t(a:b c) and @:a.b, @.lower:c. Mail@: x", ["$t(a:b c)", "@:a.b", "@.lower:c"]),
    ("A :smile: and (:thumbs-up:), std::a::b, 12:30:05, a :b c: d", [":smile:", ":thumbs-up:"]),
    ("%dpx or %sfoo", ["%d", "%s"]),
    ("{n, plural, one {# file} other {# files}}!", ["{n, plural, one {# file} other {# files}}"]),
    ("See https://ex.org/a_(b)?c=d#e, or (www.ex.org).", ["https://ex.org/a_(b)?c=d#e", "www.ex.org"]),
    ("Mail a.b+c@ex-ample.org.", ["a.b+c@ex-ample.org"]),
    (
        "Run `ls -l`, foo_bar or a.b() --force in /etc/hosts and C:\\Temp",
        ["`ls -l`", "foo_bar", "a.b()", "--force", "/etc/hosts", "C:\\Temp"],
    ),
    (
        "Edit src/a-b/main.py on docs.ex-ample.com/a/b or example.org.",
        ["src/a-b/main.py", "docs.ex-ample.com/a/b", "example.org"],
    ),
    (
        "Edit package.json, a-b.test.ts, x.tar.gz. Node.js (README.md). Go.py is in.Zip, a.doc.x",
        ["package.json", "a-b.test.ts", "x.tar.gz", "Node.js", "README.md", "Go.py"],
    ),
    ("Use sphinx.ext.autodoc, os.path.join. At 5 a.m. e.g.this, not.this", ["sphinx.ext.autodoc", "os.path.join"]),
    ("%d%% of %PATH%, %s%%, 100%", ["%d", "%%", "%PATH%", "%s", "%%"]),
    ("No `%s' after `a b', `f('.')` or `it's`: ``x''", ["`%s'", "`a b'", "`f('.')`", "`it's`"]),
    ("½ cup, 1½ cups, x½", ["½", "1½"]),
    ("_not_ but _private_name, __init__ and a_b", ["_private_name", "__init__", "a_b"]),
    ("I am here.com-mon or.community, 24/7.5 km/h. client/server", []),
    ("cp <file> &nbsp; &#160; #tag @me", ["<file>", "&nbsp;", "&#160;", "#tag", "@me"]),
    ("Use @scope/pack.age-a, @scope/sub/path or @me/ and a@b/c", ["@scope/pack.age-a", "@scope/sub/path", "@me"]),
    ("Commit 062bbf90f, [a1c30d7ea]; 16h30, 2021-01-02T10:30, MP3s4, x1-a1c30d7ea", ["062bbf90f", "a1c30d7ea"]),
    ("and/or his / her a < b & c, e.g. well-known: 5 > 4 e-mail", []),
    ("It is 100% off, 50 % of it, 100%ige", []),
    ("% d files, [% 5.1f], % done, 50 % d", ["% d", "% 5.1f"]),
    ("Le % d'élèves, cinq % d’ici, la % e il, in % e.g. 5", []),
    ("PyTorch's tensors, mBART, gRPC and ONNX; a TinyLlama", ["PyTorch", "mBART", "gRPC", "ONNX", "TinyLlama"]),
    ("WiFi, a PhD, MitarbeiterInnen, bhFrainc, isiZulu, US", []),
    ("A date as YYYY-MM-DD or dd.MM.yyyy hh:mm. yay mm a-MM, MM", ["YYYY-MM-DD", "dd.MM.yyyy", "hh:mm"]),
    ("x^2 + y^n^, a^{ij} and H~2~O, 10^-5; a ~~b~~ a~~b~~ ^^ ~5~ ~a b~", ["x^2", "y^n^", "a^{ij}", "H~2~O", "10^-5"]),
    ("Open @@edit-form?id=1 or a@@b", ["@@edit-form"]),
    ("ALL IS WELL", []),
    ("HELLO {name}, USE --force", ["{name}", "--force"]),
]


@pytest.mark.parametrize(("text", "found"), FOUND)
def test_protected_text_is_found(text: str, found: list[str]) -> None:
    assert [
        text[one.start : one.end]
        for one in ProtectedFinder(TranslationRules()).find(text)
        if one.kind is not ProtectedKind.NUMBER
    ] == found


def test_words_with_a_capital_inside_are_names_in_english() -> None:
    finder = ProtectedFinder(TranslationRules(source_language="en-US"))
    text = "An iPhone's onClick and isiZulu, eBay and 5 kWh"
    assert [text[one.start : one.end] for one in finder.find(text)] == ["iPhone", "onClick", "isiZulu", "5"]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (
            "3 files, 1,234.5 MB, 5:30pm, 2021-01-02, MP3, 5th, 1 234",
            ["3", "1,234.5", "5:30pm", "2021-01-02", "MP3", "5th", "1", "234"],
        ),
        ("Is it 12? It is 12.", ["12", "12"]),
    ],
)
def test_numbers_are_found(text: str, found: list[str]) -> None:
    assert [text[one.start : one.end] for one in ProtectedFinder(TranslationRules()).find(text)] == found


def test_user_rules_are_found() -> None:
    finder = ProtectedFinder(
        TranslationRules(
            keep=("Fire fox", ".NET", "C++"), glossary=(Term("save", "x"), Term("save as", "y")), placeholders=("@@\\w",)
        )
    )
    text = "Save as .NET or save, saved Fire foxes in Fire fox; fire fox C++ @@a"
    assert [text[one.start : one.end] for one in finder.find(text)] == ["Save as", ".NET", "save", "Fire fox", "C++", "@@a"]


@pytest.mark.parametrize(
    ("language", "text", "found"),
    [
        ("en", "שלום and дом, β-rays 你好 नमस्ते", ["שלום", "дом", "β", "你好", "नमस्ते"]),
        ("de-AT", "Łódź, Ångström ﬁn ﾊ e\u0301 µm ª x² Việt", ["ﾊ"]),
        ("", "дом", []),
        ("ru", "дом 你好", []),
        ("en", "ɛ, ( ͡° ͜ʖ ͡°) and café", ["ɛ", "ʖ"]),
    ],
)
def test_words_of_other_scripts_are_found_beside_latin(language: str, text: str, found: list[str]) -> None:
    finder = ProtectedFinder(TranslationRules(source_language=language))
    assert [text[one.start : one.end] for one in finder.find(text) if one.kind is ProtectedKind.NAME] == found
    assert finder.may_have(text) is bool(found) or "²" in text


def test_letters_that_grow_in_lower_case_do_not_shift_offsets() -> None:
    assert [(start, end) for start, end, _ in PhraseMatcher([("save", None)], any_case=True).find("İİ save SAVE")] == [
        (3, 7),
        (8, 12),
    ]
