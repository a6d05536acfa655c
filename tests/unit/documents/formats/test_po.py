"""PO reader: only the lines of translated msgstr change."""

import difflib
import shutil
import subprocess

import polib
import pytest
from hypothesis import given
from hypothesis import strategies as st

from triptych_documents.errors import DamagedDocumentError, DocumentError
from triptych_documents.format import ReadOptions
from triptych_documents.formats.po import text as potext
from triptych_documents.formats.po.reader import CREDITS
from triptych_documents.formats.shared.message_codes import joined_message
from triptych_documents.formats.shared.plurals import count, plural_forms

from .roundtrips import read, shown, swapped, texts

GERMAN = ReadOptions(target_language="de")
HEADER = r"""# Somebody
msgid ""
msgstr ""
"Project-Id-Version: x 1\n"
"Language: de\n"
"Content-Type: text/plain; charset=UTF-8\n"
"Plural-Forms: nplurals=2; plural=(n != 1);\n"

"""
TEMPLATE = r"""#, fuzzy
msgid ""
msgstr ""
"Project-Id-Version: PACKAGE VERSION\n"
"PO-Revision-Date: 2026-01-01 00:00+0000\n"
"Last-Translator: A <a@b.c>\n"
"Language-Team: B <b@b.c>\n"
"Language: \n"
"MIME-Version: 1.0\n"
"Content-Type: text/plain; charset=CHARSET\n"
"Content-Transfer-Encoding: 8bit\n"

#: main.c:1
#, c-format
msgid "Open %s"
msgstr ""

msgid "%d file"
msgid_plural "%d files"
msgstr[0] ""
msgstr[1] ""
"""


def turned(data: str, options: ReadOptions = GERMAN) -> str:
    """Render with the case of every unit swapped."""
    return swapped(read("po", data, options), data.encode()).decode()


def given_(data: str, *translations: str, options: ReadOptions = GERMAN) -> str:
    """Render with these texts for the first units."""
    return read("po", data, options).render({index: (text,) for index, text in enumerate(translations)}).decode()


def changes(old: str, new: str) -> list[str]:
    """Return added and removed lines."""
    return [line for line in difflib.ndiff(old.split("\n"), new.split("\n")) if line[0] in "+-"]


def checked(data: str) -> None:
    """Check with msgfmt, if installed."""
    if shutil.which("msgfmt"):
        done = subprocess.run(
            ["msgfmt", "--check", "-o", "/dev/null", "-"], input=data.encode(), capture_output=True, check=False
        )
        assert done.returncode == 0, done.stderr.decode()


def test_only_untranslated_messages_are_translated() -> None:
    data = (
        HEADER
        + 'msgid "One"\nmsgstr "Eins"\n\n# note\nmsgctxt "menu"\nmsgid "Two"\nmsgstr ""\n\n#~ msgid "Old"\n#~ msgstr ""\n'
    )
    document = read("po", data, GERMAN)
    assert texts(document) == ["Two"]
    assert (document.units[0].where, document.units[0].keeps_space) == ("line 14", True)
    assert changes(data, turned(data)) == ['- msgstr ""', '+ msgstr "tWO"']
    again = ReadOptions(target_language="de", retranslate=True)
    assert changes(data, turned(data, again)) == ['- msgstr "Eins"', '+ msgstr "oNE"', '- msgstr ""', '+ msgstr "tWO"']


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_line_ends_are_kept(end: str) -> None:
    data = (HEADER + 'msgid "One\\n"\n"two"\nmsgstr ""\n').replace("\n", end)
    assert given_(data, "Eins\nzwei").endswith(f'msgstr ""{end}"Eins\\n"{end}"zwei"{end}')


class TestFuzzy:
    DATA = (
        HEADER + '#: a.c:1\n#, fuzzy, c-format\n#| msgid "Older"\nmsgid "Old %s"\nmsgstr "Alt"\n\n'
        '#, fuzzy\nmsgid "New"\nmsgstr "Neu"\n'
    )

    def test_fuzzy_messages_are_translated(self) -> None:
        changed = turned(self.DATA)
        wanted = '#: a.c:1\n#, c-format\nmsgid "Old %s"\nmsgstr "oLD %S"\n\nmsgid "New"\nmsgstr "nEW"\n'
        assert changed == HEADER + wanted

    def test_mark_fuzzy_flags_translations(self) -> None:
        marked = ReadOptions(target_language="de", mark_fuzzy=True)
        data = self.DATA + '\n#, c-format\nmsgid "A"\nmsgstr ""\n\n#. x\nmsgctxt "c"\nmsgid "B"\nmsgstr ""\n'
        changed = turned(data, marked)
        assert '#, fuzzy, c-format\nmsgid "A"\nmsgstr "a"' in changed
        assert '#. x\n#, fuzzy\nmsgctxt "c"\nmsgid "B"\nmsgstr "b"' in changed
        assert [entry.fuzzy for entry in polib.pofile(changed)] == [True] * 4


class TestPlurals:
    DATA = 'msgid "%d file"\nmsgid_plural "%d files"\nmsgstr[0] ""\nmsgstr[1] ""\n'

    def test_the_header_sets_the_number_of_forms(self) -> None:
        for number, forms in ((1, ["many"]), (2, ["one", "many"]), (4, ["one", "many", "many", "many"])):
            data = HEADER.replace("nplurals=2", f"nplurals={number}") + self.DATA
            assert texts(read("po", data, GERMAN)) == ["%d file", "%d files"]
            [entry] = polib.pofile(given_(data, "one", "many"))
            assert [entry.msgstr_plural[form] for form in sorted(entry.msgstr_plural)] == forms

    def test_forms_for_many_numbers_contain_the_number(self) -> None:
        data = HEADER.replace("nplurals=2", "nplurals=3") + self.DATA.replace("%d file", "A file", 1)
        [entry] = polib.pofile(given_(data, "ein", "%d viele"))
        assert list(entry.msgstr_plural.values()) == ["%d viele"] * 3

    def test_existing_forms_are_kept(self) -> None:
        data = HEADER + self.DATA.replace('[1] ""', '[1] "%d Dateien"')
        assert 'msgstr[0] "eine"\nmsgstr[1] "%d Dateien"\n' in given_(data, "eine")
        assert 'msgstr[0] "eine"\nmsgstr[1] "%d Dateien"\n' in given_(data, "eine", "%d andere")
        again = ReadOptions(target_language="de", retranslate=True)
        assert 'msgstr[0] "eine"\nmsgstr[1] "%d andere"\n' in given_(data, "eine", "%d andere", options=again)

    @pytest.mark.parametrize(
        ("language", "number"), [("ja", 1), ("de", 2), ("pt-BR", 2), ("ru", 3), ("ar", 6), ("sl", 4), ("xx", 2)]
    )
    def test_forms_depend_on_the_language(self, language: str, number: int) -> None:
        assert count(plural_forms(language)) == number
        assert count("nplurals=INTEGER; plural=EXPRESSION;") is None
        changed = turned(TEMPLATE, ReadOptions(target_language=language))
        checked(changed.replace("%S", "%s").replace("%D", "%d"))


def test_a_template_becomes_a_catalog() -> None:
    changed = given_(TEMPLATE, "%s öffnen", "%d Datei", "%d Dateien", options=ReadOptions(target_language="pt-BR"))
    checked(changed)
    assert changes(TEMPLATE, changed) == [
        "- #, fuzzy",
        '- "Language: \\n"',
        '+ "Language: pt_BR\\n"',
        '- "Content-Type: text/plain; charset=CHARSET\\n"',
        '+ "Content-Type: text/plain; charset=UTF-8\\n"',
        '+ "Plural-Forms: nplurals=2; plural=(n > 1);\\n"',
        '- msgstr ""',
        '+ msgstr "%s öffnen"',
        '- msgstr[0] ""',
        '+ msgstr[0] "%d Datei"',
        '- msgstr[1] ""',
        '+ msgstr[1] "%d Dateien"',
    ]


def test_wrapped_headers_are_read() -> None:
    header = HEADER.replace('nplurals=2; plural=(n != 1);\\n"', 'nplurals=3; "\n"plural=(n%3);\\n"')
    changed = turned(header + TestPlurals.DATA)
    assert "msgstr[2]" in changed
    assert changed.startswith(header)
    foreign = turned(header + TestPlurals.DATA, ReadOptions(target_language="ja"))
    assert foreign.count("Plural-Forms") == 1
    assert '"Language: ja\\n"' in foreign
    assert "msgstr[1]" not in foreign


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (r'"X: y\nLanguage: en\nY: z\n"', r'"X: y\nLanguage: de\nY: z\n"'),
        ('""\n"Lang"\n"uage: en\\n"\n"X: y\\n"', '""\n"Language: de\\n"\n"X: y\\n"'),
        ('""\n"X: \\\\n\\n"\n"Y: z"', '""\n"X: \\\\n\\n"\n"Y: z\\n"\n"Language: de\\n"'),
        ('"X: y\\n"\n""', '"X: y\\n"\n""\n"Language: de\\n"'),
        ('""', '""\n"Language: de\\n"'),
    ],
)
def test_other_fields_of_a_header_are_kept(header: str, expected: str) -> None:
    assert potext.with_fields(f"msgstr {header}", {"Language": "de"}, "\n") == f"msgstr {expected}"


def test_catalogs_in_another_language_stay_unchanged() -> None:
    data = HEADER + 'msgid "A"\nmsgstr "B"\n\nmsgid "C"\nmsgstr ""\n'
    document = read("po", data, ReadOptions(target_language="fr"))
    assert (texts(document), [finding.message for finding in document.findings]) == (
        [],
        ["translations are in de, not in fr; nothing was translated"],
    )


class TestStrings:
    def test_surrounding_white_space_follows_the_message(self) -> None:
        data = HEADER + 'msgid "\\n One\\n"\nmsgstr ""\n'
        assert texts(read("po", data, GERMAN)) == ["One"]
        assert given_(data, "Eins").endswith('msgstr ""\n"\\n"\n" Eins\\n"\n')
        checked(given_(data, "Eins"))

    def test_strings_are_wrapped_as_by_gettext(self) -> None:
        data = HEADER + 'msgid "A"\nmsgstr ""\n'
        words = " ".join(["word"] * 40)
        changed = given_(data, words)
        assert max(map(len, changed.split("\n"))) == 77  # another word would make 82
        if shutil.which("msgcat"):
            for text in (
                words,
                "a" * 70,
                "a" * 69 + " b",
                "Ein Satz.\nNoch einer, der so lang ist, dass er gebrochen wird: " + words,
                "x\n",
            ):
                made = given_(data, text)
                assert (
                    subprocess.run(["msgcat", "-"], input=made.encode(), capture_output=True, check=True).stdout.decode()
                    == made
                )
        assert polib.pofile(changed)[0].msgstr == words
        kept = HEADER + f'msgid "{words}"\nmsgstr "{words}"\n\nmsgid "A"\nmsgstr ""\n'
        assert f'msgid "A"\nmsgstr "{words}"\n' in given_(kept, words)

    @given(
        st.text(st.characters(exclude_categories=["Cs", "Cc"]) | st.sampled_from('\n\t\\"nt'), min_size=1).filter(
            lambda text: text not in ("A", *CREDITS)
        )
    )
    def test_any_text_round_trips(self, text: str) -> None:
        changed = given_(HEADER + 'msgid "A"\nmsgstr ""\n\nmsgid "End"\nmsgstr "Ende"\n', text)
        again = read("po", changed.replace('msgid "A"', 'msgid "B"'), ReadOptions(retranslate=True))
        assert texts(again) == ["B", "End"]
        [string] = [line for line in changed.split("\n\n") if 'msgid "A"' in line]
        swapped = HEADER + string.replace('msgid "A"\n', "").replace("msgstr", "msgid", 1) + '\nmsgstr ""\n'
        lead_and_tail = text.strip(" \t\r\n\v\f")
        found = [joined_message(unit.pieces) for unit in read("po", swapped, GERMAN).units]
        assert found == ([lead_and_tail] if lead_and_tail else [])

    def test_unusual_separators_stay(self) -> None:
        data = HEADER + 'msgid "a\u2028b\x85c"\nmsgstr ""\n'
        assert texts(read("po", data, GERMAN)) == ["a\u2028b\x85c"]
        assert turned(data).endswith('msgstr "A\u2028B\x85C"\n')


@pytest.mark.parametrize(
    ("message", "wanted"),
    [
        ("_File", "⟦_⟧File"),
        ("Save _As", "Save ⟦_⟧As"),
        ("E_xit", "E⟦_⟧xit"),
        ("&Open", "⟦&⟧Open"),
        ("Pr&int", "Pr⟦&⟧int"),
        ("AT&T", "AT&T"),
        ("A & B", "A & B"),
        ("Q&amp;A", "Q&amp;A"),
        ("file_name of X", "file_name of X"),
        ("_id", "_id"),
        ("_A _B", "_A _B"),
        ("%(file_name)s is", "%(file_name)s is"),
        ("Hi <b>you</b><br/> <file>", "Hi ⟦<b>⟧you⟦</b>⟧⟦<br/>⟧ <file>"),
        ("<a href='x_Y'>A</a>", "⟦<a href='x_Y'>⟧A⟦</a>⟧"),
        ("_See <i>It</i>", "⟦_⟧See ⟦<i>⟧It⟦</i>⟧"),
    ],
)
def test_accelerators_and_tags_are_codes(message: str, wanted: str) -> None:
    data = f'msgid "{message}"\nmsgstr ""\n'
    assert shown(read("po", data)) == [wanted]
    assert given_(data, "x") == f'msgid "{message}"\nmsgstr "x"\n'


def test_the_header_sets_the_accelerator() -> None:
    data = (
        HEADER.replace('"Language', '"X-Accelerator-Marker: ~\\n"\n"Language')
        + 'msgid "~File"\nmsgstr ""\n\nmsgid "_File"\nmsgstr ""\n'
    )
    assert shown(read("po", data)) == ["⟦~⟧File", "_File"]


def test_an_accelerator_stands_before_a_letter() -> None:
    document = read("po", 'msgid "Save _As"\nmsgstr ""\n')
    save, sign, last = document.units[0].pieces
    for pieces, wanted in (
        (("Speichern ", sign, "als"), "Speichern _als"),
        (("Speichern als", sign), "_Speichern als"),
        (("%s ", sign, "<b> 1 %d drei"), "%s <b> 1 %d _drei"),
        (("保存", sign, "为"), "保存_为"),
        (("1", sign), "1"),
    ):
        assert f'msgstr "{wanted}"' in document.render({0: pieces}).decode()
    assert (save, last) == ("Save ", "As")


def test_trailing_comments_lose_no_message() -> None:
    for end in ("#:\n", "#, \n", "# x\n", '#~ msgid "a"\n#~ msgstr "b"\n', '#~| msgid "a"\n', ""):
        data = f'msgid "One"\nmsgstr ""\n\nmsgid "Two"\nmsgstr ""\n{end}'
        assert given_(data, "1", "2") == f'msgid "One"\nmsgstr "1"\n\nmsgid "Two"\nmsgstr "2"\n{end}'


def test_comments_need_no_space() -> None:
    data = '#.A remark\n#:a.c:1\n#,fuzzy\nmsgid "Two"\nmsgstr "Zwei"\n'
    assert given_(data, "2") == '#.A remark\n#:a.c:1\nmsgid "Two"\nmsgstr "2"\n'


def test_translator_credits_are_not_translated() -> None:
    data = 'msgid "translator-credits"\nmsgstr ""\n\nmsgctxt "NAME OF TRANSLATORS"\nmsgid "Your names"\nmsgstr ""\n'
    assert texts(read("po", data)) == []


def test_the_charset_is_used_and_kept() -> None:
    data = (HEADER.replace("UTF-8", "ISO-8859-1") + 'msgid "A"\nmsgstr ""\n\nmsgid "B"\nmsgstr "ü"\n').encode("latin-1")
    document = read("po", data, GERMAN)
    assert document.render({0: ("ä",)}) == data.replace(b'msgid "A"\nmsgstr ""', b'msgid "A"\nmsgstr "\xe4"')
    with pytest.raises(DocumentError, match="does not exist in"):
        document.render({0: ("€",)})


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        ('msgid "a', "line 1"),
        ('msgid "a" b"\nmsgstr ""\n', "line 1: not a PO file: expected a comment, or a keyword"),
        ("nonsense\n", "line 1: not a PO file"),
        ('# a\n"a"\n', "line 2: not a PO file"),
        ('msgid "a"\n', "line 1: a message has no msgstr"),
        ('msgid "a"\nmsgid "b"\nmsgstr ""\n', "line 1: a message has no msgstr"),
        ('msgid "a"\n\n#~ msgid "b"\n#~ msgstr ""\n', "line 1: a message has no msgstr"),
        ('msgid "a"\nmsgstr ""\n\nmsgid "b"\n', "line 4: a message has no msgstr"),
        ("/etc/hostname", "not a PO file"),
    ],
)
def test_damaged_files_are_rejected(data: str, problem: str) -> None:
    with pytest.raises(DamagedDocumentError, match=problem):
        read("po", data)
