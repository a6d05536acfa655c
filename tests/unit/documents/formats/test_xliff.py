"""XLIFF reader: only targets are added."""

import contextlib
import difflib
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triptych_documents.errors import DamagedDocumentError
from triptych_documents.format import ReadOptions
from triptych_documents.unit import Code, Role

from .roundtrips import read, shown, swapped, texts

GERMAN = ReadOptions(source_language="en", target_language="de")
OLDER = '<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2">'
NEWER = '<xliff version="2.1" xmlns="urn:oasis:names:tc:xliff:document:2.0"'
AGAIN = ReadOptions(source_language="en", target_language="de", retranslate=True)


def older(body: str, languages: str = 'source-language="en"') -> str:
    return f"{OLDER}<file {languages}><body>\n{body}\n</body></file></xliff>"


def newer(body: str, languages: str = 'srcLang="en"') -> str:
    return (
        f'<xliff version="2.1" xmlns="urn:oasis:names:tc:xliff:document:2.0" {languages}><file id="f">\n{body}\n</file></xliff>'
    )


def unit(source: str, more: str = "", said: str = "") -> str:
    return older(f'  <trans-unit id="1"{said}>\n    <source>{source}</source>{more}\n  </trans-unit>')


def segment(source: str, more: str = "", said: str = "") -> str:
    return newer(f'  <unit id="1">\n   <segment{said}>\n    <source>{source}</source>{more}\n   </segment>\n  </unit>')


def turned(data: str, options: ReadOptions = GERMAN) -> str:
    """Render with the case of every unit swapped."""
    changed = swapped(read("xliff", data, options), data.encode()).decode()
    ElementTree.fromstring(changed)
    return changed


def added(data: str, options: ReadOptions = GERMAN) -> list[str]:
    """Return added and removed lines after translation."""
    lines = difflib.ndiff(data.split("\n"), turned(data, options).split("\n"))
    return [line for line in lines if line[0] in "+-"]


class TestOlder:
    def test_a_target_is_put_below_its_source(self) -> None:
        assert added(unit("Hello &amp; bye")) == [
            f'- {OLDER}<file source-language="en"><body>',
            f'+ {OLDER}<file source-language="en" target-language="de"><body>',
            '+     <target state="translated">hELLO &amp; BYE</target>',
        ]

    def test_line_ends_and_prefixes_are_kept(self) -> None:
        data = unit("Hi").replace("\n", "\r\n").replace("trans-unit", "x:trans-unit").replace("source>", "x:source>")
        data = data.replace("<xliff", '<x:xliff xmlns:x="urn:oasis:names:tc:xliff:document:1.2"').replace(
            "</xliff", "</x:xliff"
        )
        data = data.replace("<file", "<x:file").replace("</file", "</x:file").replace("body>", "x:body>")
        assert '</x:source>\r\n    <x:target state="translated">hI</x:target>\r\n  </x:trans-unit>' in turned(data)

    @pytest.mark.parametrize(
        "target", ["", "<target/>", "<target></target>", '<target state="new">Hello</target>', "<target> </target>"]
    )
    def test_untranslated_sources_get_a_target(self, target: str) -> None:
        assert '<target state="translated">hELLO</target>' in turned(unit("Hello", target))

    @pytest.mark.parametrize(
        ("said", "target"),
        [
            ("", "<target>Hallo</target>"),
            (' approved="yes"', ""),
            (' translate="no"', ""),
            ("", '<target state="final">Hallo</target>'),
        ],
    )
    def test_translated_and_approved_sources_stay(self, said: str, target: str) -> None:
        assert texts(read("xliff", unit("Hello", target, said), GERMAN)) == []

    def test_retranslate_replaces_targets(self) -> None:
        data = unit("Hello", '<target state="final" state-qualifier="exact-match">Hallo</target>', ' approved="yes"')
        changed = turned(data, AGAIN)
        assert '<trans-unit id="1" approved="no">' in changed
        assert '<target state="translated" state-qualifier="mt-suggestion">hELLO</target>' in changed

    def test_mark_fuzzy_sets_the_review_state(self) -> None:
        fuzzy = ReadOptions(target_language="de", mark_fuzzy=True)
        assert '<target state="needs-review-translation">hI</target>' in turned(unit("Hi"), fuzzy)

    def test_groups_inherit_translate(self) -> None:
        inner = '<group translate="no"><trans-unit id="1"><source>No</source></trans-unit>'
        inner += '<trans-unit id="2" translate="yes"><source>Yes</source></trans-unit></group>'
        document = read("xliff", older(inner + '<bin-unit id="3"><bin-source/></bin-unit>'), GERMAN)
        assert texts(document) == ["Yes"]
        assert document.units[0].where == "unit 2"

    def test_alternatives_stay(self) -> None:
        alternative = "<alt-trans><source>Hello</source><target>Salut</target></alt-trans>"
        assert f'<target state="translated">hELLO</target>{alternative}' in turned(unit("Hello", alternative)).replace(
            "\n    ", ""
        )

    def test_segments_of_a_source_are_units(self) -> None:
        segmented = '<seg-source><mrk mtype="seg" mid="1">One.</mrk> <mrk mtype="seg" mid="2">Two.</mrk></seg-source>'
        target = '<target><mrk mtype="seg" mid="1">Eins.</mrk></target>'
        data = unit("One. Two.", segmented + target)
        assert texts(read("xliff", data, GERMAN)) == ["Two."]
        wanted = '<target state="translated"><mrk mtype="seg" mid="1">{}</mrk> <mrk mtype="seg" mid="2">tWO.</mrk></target>'
        assert wanted.format("Eins.") in turned(data)
        assert wanted.format("oNE.") in turned(data, AGAIN)

    def test_incomplete_targets_are_marked(self) -> None:
        segmented = '<seg-source><mrk mtype="seg" mid="1">One.</mrk><mrk mtype="seg" mid="2">Two.</mrk></seg-source>'
        data = unit("One.Two.", segmented)
        changed = read("xliff", data, GERMAN).render({0: ("Eins.",)}).decode()
        assert (
            '<target state="needs-translation"><mrk mtype="seg" mid="1">Eins.</mrk><mrk mtype="seg" mid="2">Two.</mrk>'
            in changed
        )
        assert texts(read("xliff", changed, GERMAN)) == ["One.", "Two."]


class TestNewer:
    def test_a_target_is_put_below_its_source(self) -> None:
        assert added(segment("Hello")) == [
            f'- {NEWER} srcLang="en"><file id="f">',
            f'+ {NEWER} srcLang="en" trgLang="de"><file id="f">',
            "-    <segment>",
            '+    <segment state="translated">',
            "+     <target>hELLO</target>",
        ]

    def test_states_select_segments(self) -> None:
        initial = segment("Hello", "<target>Hello</target>", ' state="initial" subState="x:y"')
        assert '<segment state="translated">' in turned(initial)
        assert "<target>hELLO</target>" in turned(initial)
        assert texts(read("xliff", segment("Hello", "<target>Hallo</target>"), GERMAN)) == []
        assert texts(read("xliff", segment("Hello", "", ' state="final"'), GERMAN)) == []

    def test_matches_and_notes_stay(self) -> None:
        match = '<m:matches xmlns:m="urn:oasis:names:tc:xliff:matches:2.0"><m:match><source>A</source></m:match></m:matches>'
        data = newer(f'<unit id="1">{match}<notes><note>Note</note></notes><segment><source>Text</source></segment></unit>')
        assert texts(read("xliff", data, GERMAN)) == ["Text"]
        assert match in turned(data)

    def test_surrounding_white_space_is_kept(self) -> None:
        data = segment("\n      Hello\n      you\n    ")
        assert read("xliff", data, GERMAN).units[0].pieces == ("Hello you",)
        assert "<target>\n      hELLO YOU\n    </target>" in turned(data)
        kept = data.replace("<unit", '<unit xml:space="preserve"')
        assert read("xliff", kept, GERMAN).units[0].pieces == ("\n      Hello\n      you\n    ",)
        assert read("xliff", kept, GERMAN).units[0].keeps_space


@pytest.mark.parametrize(
    ("source", "pieces"),
    [
        ('a<g id="1">b<x id="2"/></g>', ["a", '⟦<g id="1">⟧', "b", '⟦<x id="2"/>⟧', "⟦</g>⟧"]),
        (
            '<bpt id="1">&lt;b></bpt>b<ept id="1">&lt;/b></ept>',
            ['⟦<bpt id="1">&lt;b></bpt>⟧', "b", '⟦<ept id="1">&lt;/b></ept>⟧'],
        ),
        ('a<ph id="1">{0}</ph><it id="2" pos="open">x</it>', ["a", '⟦<ph id="1">{0}</ph>⟧', '⟦<it id="2" pos="open">x</it>⟧']),
        ('a<mrk mtype="protected">Zed</mrk>', ["a", '⟦<mrk mtype="protected">Zed</mrk>⟧']),
        ("a<!-- c -->b", ["ab"]),
    ],
)
def test_inline_elements_are_codes(source: str, pieces: list[str]) -> None:
    assert shown(read("xliff", unit(source), GERMAN)) == ["".join(pieces)]
    assert len(read("xliff", unit(source), GERMAN).units[0].pieces) == len(pieces)


def roles(source: str, made: str) -> list[tuple[Role, int]]:
    """Return roles of the codes, and their pairs numbered in order."""
    data = segment(source) if made == "newer" else unit(source)
    codes = read("xliff", data, GERMAN).units[0].codes
    numbers: dict[int, int] = {}
    return [(code.role, numbers.setdefault(code.pair, len(numbers))) for code in codes]


@pytest.mark.parametrize(
    ("source", "made", "wanted"),
    [
        ('<pc id="1">a</pc><sc id="2"/>b<ec startRef="2"/>', "newer", "o0 c0 o1 c1"),
        ('<sc id="1"/>a<pc id="2">b<ec startRef="1"/></pc>', "newer", "a0 o1 a2 c1"),
        ('a<ec id="1" isolated="yes"/>', "newer", "a0"),
        ('<sm id="m" type="t"/>a<em startRef="m"/>', "newer", "o0 c0"),
        ('a<sm id="m" translate="no"/>Zed<em startRef="m"/>', "newer", "a0"),
        ('<bx id="1" rid="7"/>a<ex id="2" rid="7"/>', "older", "o0 c0"),
        ('<bpt id="1"/>a<bpt id="2"/>b<ept id="1"/>c<ept id="2"/>', "older", "o0 a1 c0 a2"),
        ('<x id="START_LINK_1"/>a<x id="CLOSE_LINK"/>', "older", "o0 c0"),
    ],
)
def test_nested_halves_are_paired(source: str, made: str, wanted: str) -> None:
    assert [f"{role.name[0].lower()}{pair}" for role, pair in roles(source, made)] == wanted.split()


def test_codes_show_their_equivalent_text() -> None:
    source = (
        'a<x id="1" ctype="lb"/>b<x id="2" equiv-text="{{name}}"/><x id="3" equiv-text="&lt;b>"/><mrk mtype="protected">Z</mrk>'
    )
    codes = read("xliff", unit(source), GERMAN).units[0].codes
    assert [code.shown for code in codes] == ["\n", "{{name}}", "", "Z"]


@pytest.mark.parametrize(("before", "units"), [("Press ", ["Press "]), ("", [])])
def test_untranslated_text_inside_of_a_code_is_reported(before: str, units: list[str]) -> None:
    document = read("xliff", unit(f'{before}<ph id="1">&lt;img alt="<sub>the red button</sub>"></ph>'), GERMAN)
    assert texts(document) == units
    [finding] = document.findings
    assert (finding.where, finding.severity.value) == ("unit 1", "warning")
    assert "'the red button'" in finding.message


def test_cdata_stays_cdata() -> None:
    data = unit("<![CDATA[Some <b>bold</b>]]>")
    assert texts(read("xliff", data, GERMAN)) == ["Some <b>bold</b>"]
    changed = read("xliff", data, GERMAN).render({0: ("a ]]> b",)}).decode()
    assert '<target state="translated"><![CDATA[a ]]]]><![CDATA[> b]]></target>' in changed


class TestLanguages:
    def test_targets_in_another_language_stay_unchanged(self) -> None:
        units = '<trans-unit id="1"><source>A</source><target>B</target></trans-unit>'
        units += '<trans-unit id="2"><source>C</source></trans-unit>'
        data = older(units, 'source-language="en-US" target-language="fr"')
        document = read("xliff", data, GERMAN)
        assert [finding.message for finding in document.findings] == ["targets are in fr, not in de; nothing was translated"]
        assert texts(document) == []
        assert 'target-language="de"' in turned(data, AGAIN)

    def test_another_source_language_is_reported(self) -> None:
        [finding] = read("xliff", unit("A").replace('="en"', '="fr"'), GERMAN).findings
        assert "declares its source to be in fr, not in en" in finding.message

    def test_regions_are_ignored(self) -> None:
        data = unit("A").replace('="en"', '="en-US" target-language="de-AT"')
        assert 'target-language="de-AT"' in turned(data)


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        ("<html/>", "not XLIFF: its root element is html"),
        ('<xliff xmlns="urn:other"/>', "not XLIFF"),
        ("<xliff>", "not well-formed"),
        ('<!DOCTYPE xliff [<!ENTITY a "b">]><xliff/>', "declares the entity"),
    ],
)
def test_other_xml_is_rejected(data: str, problem: str) -> None:
    with pytest.raises(DamagedDocumentError, match=problem):
        read("xliff", data)


@given(st.text(st.characters(exclude_categories=["Cs", "Cc"]) | st.sampled_from("\n&<>]"), min_size=1))
def test_any_text_round_trips(text: str) -> None:
    for data, path in (
        (unit("Hello"), ".//{*}target"),
        (segment("Hello"), ".//{*}target"),
        (unit("<![CDATA[Hello]]>"), ".//{*}target"),
    ):
        found = ElementTree.fromstring(read("xliff", data, GERMAN).render({0: (text,)})).find(path)
        assert found is not None
        assert text in ("Hello", found.text)


@given(st.integers(0, 400), st.integers(0, 60), st.sampled_from(["", "<", ">", "&", '"', "<g>", "</g>", "]]>", "<source>"]))
def test_damaged_files_are_rejected_or_harmless(start: int, length: int, instead: str) -> None:
    data = unit('A <g id="1">b <x id="2"/></g><bpt id="3"/>c<ept id="3"/>', "<target/>")
    data = data[:start] + instead + data[start + length :]
    with contextlib.suppress(DamagedDocumentError):
        turned(data)


@pytest.mark.parametrize(("most", "size_unit", "found"), [("5", "char", True), ("6", "char", False), ("5", "pixel", False)])
def test_translations_longer_than_their_field_are_reported(most: str, size_unit: str, found: bool) -> None:
    data = unit('a <x id="2"/>').replace("<trans-unit", f'<trans-unit maxwidth="{most}" size-unit="{size_unit}"')
    document = read("xliff", data, GERMAN)
    document.render({0: ("abcde ", *document.units[0].codes)})
    assert [(finding.kind.value, finding.where) for finding in document.findings] == [("length", "unit 1")] * found


def test_codes_may_change_their_order() -> None:
    document = read("xliff", unit('a <g id="1">b</g> c<x id="2"/>'), GERMAN)
    a, opened, b, closed, c, alone = document.units[0].pieces
    assert isinstance(alone, Code)
    changed = document.render({0: (alone, "C ", opened, "B", closed, " A")}).decode()
    assert '<target state="translated"><x id="2"/>C <g id="1">B</g> A</target>' in changed
    assert (a, b, c) == ("a ", "b", " c")
