"""Human translations: TMX files, and memories that they are imported into."""

from collections import Counter
from pathlib import Path

import pytest

from triptych_cli.documents.human import HumanTranslations, add_entries, dropped_lines, read_tmx
from triptych_cli.documents.stored import Database
from triptych_documents.errors import DamagedDocumentError
from triptych_documents.formats.bilingual import MemoryEntry

TMX = """<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE tmx SYSTEM "tmx14.dtd">
<tmx version="1.4">
  <header creationtool="test" creationtoolversion="1" datatype="plaintext" segtype="sentence" adminlang="en" srclang="en-US"
          o-tmf="none"/>
  <body>
    <tu><tuv xml:lang="en-US"><seg>Hello &amp; welcome</seg></tuv><tuv xml:lang="de"><seg>Hallo und willkommen</seg></tuv>
        <tuv xml:lang="fr"><seg>Bienvenue</seg></tuv></tu>
    <tu><tuv xml:lang="de"><seg>Datei</seg></tuv><tuv xml:lang="en-US"><prop type="x">n</prop><seg>File</seg></tuv></tu>
    <tu><tuv xml:lang="en-US"><seg>A <bpt i="1">&lt;b></bpt>bold<ept i="1">&lt;/b></ept> word</seg></tuv>
        <tuv xml:lang="de"><seg>Ein fettes Wort</seg></tuv></tu>
    <tu><tuv xml:lang="en-US"><seg>A <hi>nice</hi> day</seg></tuv><tuv xml:lang="de"><seg>Ein schöner Tag</seg></tuv></tu>
    <tu><tuv xml:lang="en-US"><seg> </seg></tuv><tuv xml:lang="de"><seg>nichts</seg></tuv></tu>
  </body>
</tmx>
"""


def saved(folder: Path, content: str = TMX, name: str = "memory.tmx") -> Path:
    path = folder / name
    path.write_text(content, encoding="utf-8")
    return path


def test_reading_tmx(tmp_path: Path) -> None:
    dropped = Counter[str]()
    assert list(read_tmx(saved(tmp_path), dropped)) == [
        MemoryEntry("en-US", "de", "Hello & welcome", "Hallo und willkommen"),
        MemoryEntry("en-US", "fr", "Hello & welcome", "Bienvenue"),
        MemoryEntry("en-US", "de", "File", "Datei"),
        MemoryEntry("en-US", "de", "A nice day", "Ein schöner Tag"),
    ]
    assert dropped == {"with inline markup": 1, "empty": 1}


@pytest.mark.parametrize(
    ("header", "languages", "source"),
    [
        ("en", ("en-US", "de"), "en-US"),
        ("en-US", ("en", "de"), "en"),
        ("en_US", ("en-US", "de"), "en-US"),
        ("en-US", ("de", "en", "en-US"), "en-US"),
        ("*all*", ("en", "de"), "en"),
        ("", ("en", "de"), "en"),
        ("en-US", ("en-GB", "de"), None),
        ("en", ("de", "fr", "it"), None),
    ],
)
def test_the_source_language_of_tmx_matches_with_and_without_region(
    tmp_path: Path, header: str, languages: tuple[str, ...], source: str | None
) -> None:
    variants = "".join(f'<tuv xml:lang="{language}"><seg>{language}</seg></tuv>' for language in languages)
    content = f'<tmx version="1.4"><header srclang="{header}"/><body><tu>{variants}</tu></body></tmx>'
    dropped, others = Counter[str](), [language for language in languages if language != source]
    found = list(read_tmx(saved(tmp_path, content), dropped))
    assert found == [MemoryEntry(source, other, source, other) for other in others if source]
    assert dropped == ({} if source else {f"without a text in {header}, the source language": len(languages) - 1})


def test_dropped_entries_are_listed_by_reason() -> None:
    dropped = {Path("a.tmx"): Counter(x=1_000, y=2), Path("b.tmx"): Counter[str](), Path("c.tmx"): Counter(y=1)}
    assert list(dropped_lines(dropped)) == ["a.tmx: 1,002 entries dropped: 1,000 x, 2 y", "c.tmx: 1 entry dropped: 1 y"]


def test_reading_a_tmx_of_any_encoding_piece_by_piece(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("triptych_cli.documents.human.CHUNK_BYTES", 7)
    path = tmp_path / "memory.tmx"
    path.write_bytes(TMX.replace("UTF-8", "UTF-16").encode("utf-16"))
    assert [entry.target for entry in read_tmx(path, Counter())][-1] == "Ein schöner Tag"


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("<tmx><body>", "no element found"),
        ("<html/>", "the root element is 'html'"),
        ('<!DOCTYPE tmx [<!ENTITY a "aaaa">]><tmx>&a;</tmx>', "declares the entity 'a'"),
        ("", "no element found"),
    ],
)
def test_damaged_tmx(tmp_path: Path, content: str, problem: str) -> None:
    with pytest.raises(DamagedDocumentError, match=problem):
        list(read_tmx(saved(tmp_path, content), Counter()))


def human(source: str, target: str, *files: Path, database: Database | None = None) -> HumanTranslations:
    return HumanTranslations(database or Database(Path(":memory:")), files, source, target)


def test_only_entries_of_the_languages_are_used(tmp_path: Path) -> None:
    file = saved(tmp_path)
    assert human("en", "de", file).find("File") == "Datei"
    assert human("en-US", "deu_Latn", file).find("File") == "Datei"
    assert human("", "", file).find("File") == "Datei"
    french = human("en", "fr", file)
    assert french.find("File") is None
    assert french.dropped == {file: {"in other languages": 3, "with inline markup": 1, "empty": 1}}
    assert human("en", "fr", file).find("Hello & welcome") == "Bienvenue"
    assert human("en-GB", "de", file).find("File") is None
    assert human("en", "de", file).find("file") is None
    other = saved(tmp_path, TMX.replace("Datei", "Akte"), "other.tmx")
    assert human("en", "de", other, file).find("File") == "Akte"  # the first file takes precedence


def test_an_imported_file(tmp_path: Path) -> None:
    with Database(tmp_path / "memory") as database:
        assert human("en", "de", database=database).editions == {}
        assert add_entries(database, read_tmx(saved(tmp_path), Counter())) == 4
        first = human("en", "de", database=database)
        assert first.find("File") == "Datei"
        assert first.find("nothing") is None
        assert first.find("half a pair \ud800") is None
        assert human("en", "fr", database=database).find("File") is None
        add_entries(database, read_tmx(saved(tmp_path, TMX.replace("Datei", "Akte")), Counter()))
        second = human("en", "de", database=database)
        assert second.find("File") == "Akte"
        assert first.editions != second.editions
        with pytest.raises(DamagedDocumentError):
            add_entries(database, read_tmx(saved(tmp_path, TMX[:-20]), Counter()))
        assert human("en", "de", database=database).find("File") == "Akte"  # nothing has changed
