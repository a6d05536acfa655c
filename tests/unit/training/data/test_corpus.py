"""Reading files of sentence pairs, good and malformed ones."""

import bz2
import gzip
import lzma
import re
from pathlib import Path

import pytest

from triptych_training.data.corpus import digest, read_pairs
from triptych_training.errors import CorpusError

GOOD = "a dog\tein Hund\na café\tein Café\n"
PAIRS = [("a dog", "ein Hund"), ("a café", "ein Café")]


def write(path: Path, content: str | bytes) -> str:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return str(path)


def fault(*paths: str) -> str:
    with pytest.raises(CorpusError) as caught:
        read_pairs(paths)
    return str(caught.value)


def test_files_of_every_form_are_read_alike(tmp_path: Path) -> None:
    tabbed = write(tmp_path / "a.tsv", GOOD)
    zipped = write(tmp_path / "a.tsv.gz", gzip.compress(GOOD.encode()))
    left = write(tmp_path / "a.en", "a dog\na café\n")
    right = write(tmp_path / "a.de.gz", gzip.compress("ein Hund\nein Café".encode()))
    assert read_pairs([tabbed]) == read_pairs([zipped]) == read_pairs([f"{left}::{right}"]) == PAIRS
    assert read_pairs([tabbed, zipped]) == PAIRS * 2
    path = write(tmp_path / "a.tsv", b"\xef\xbb\xbf a dog \tein Hund\r\na caf\xc3\xa9\tein Caf\xc3\xa9 \r\n")
    assert read_pairs([path]) == PAIRS
    path = write(tmp_path / "a.tsv", "a\u2028b\x0bc\tein\x85Hund\n")
    assert read_pairs([path]) == [("a\u2028b\x0bc", "ein\x85Hund")]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            "no tab",
            "1 tab-separated fields, expected 2 (source, target); put a tab between them, or give two aligned files as "
            "SOURCE::TARGET",
        ),
        ("one\ttwo\tthree", "3 tab-separated fields, expected 2 (source, target); keep two, as `cut -f1,2` does"),
        ("", "the line is empty; remove it"),
        (" \tein Hund", "the source side is empty"),
        ("a dog\t ", "the target side is empty"),
    ],
)
def test_a_malformed_line_is_named(tmp_path: Path, line: str, message: str) -> None:
    path = write(tmp_path / "a.tsv", f"{GOOD}{line}\n")
    assert fault(path) == f"{path}:3: {message}"


def test_unreadable_files_are_named_with_the_line(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", GOOD.encode() + b"caf\xe9 noir\tKaffee\n")
    assert fault(path) == f"{path}:3: not UTF-8 (invalid continuation byte at byte 3)"
    path = write(tmp_path / "a.tsv", b"\xef\xbb\xbfcaf\xe9 noir\tKaffee\n")
    assert fault(path) == f"{path}:1: not UTF-8 (invalid continuation byte at byte 6)"
    whole = gzip.compress("".join(f"source {i * 7919}\ttarget {i * 104729}\n" for i in range(5_000)).encode())
    path = write(tmp_path / "a.tsv.gz", whole[: len(whole) // 2])
    assert re.fullmatch(rf"{path}:\d+: cannot be read: Compressed file ended.*", fault(path))
    for place in (0, 15, 60):  # header, first block, data
        content = bytearray(gzip.compress(GOOD.encode() * 50, mtime=0))
        content[place] ^= 0xFF
        path = write(tmp_path / "b.tsv.gz", bytes(content))
        assert fault(path).startswith(path)
    assert fault(str(tmp_path / "none.tsv")) == f"{tmp_path}/none.tsv: cannot be read: No such file or directory"
    assert fault(str(tmp_path)) == f"{tmp_path}: cannot be read: Is a directory"
    left, right = write(tmp_path / "a.en", "a dog\na cat\n"), write(tmp_path / "a.de", "ein Hund\n\n")
    assert fault(f"{left}::{right}") == f"{left}::{right}:2: the target side is empty"


@pytest.mark.parametrize(
    ("content", "hint"),
    [
        (GOOD.encode("utf-16"), "it is UTF-16, which `iconv -f UTF-16 -t UTF-8` converts"),
        (gzip.compress(GOOD.encode()), "it is compressed: let its name end in .gz"),
        (lzma.compress(GOOD.encode()), "it is compressed: let its name end in .xz"),
        (bz2.compress(GOOD.encode()), "it is compressed with bzip2; decompress it"),
    ],
    ids=["UTF-16", "gzip", "xz", "bzip2"],
)
def test_a_file_that_is_not_plain_utf8_is_recognised(tmp_path: Path, content: bytes, hint: str) -> None:
    path = write(tmp_path / "a.tsv", content)
    assert re.fullmatch(rf"{path}:1: not UTF-8 \(.*\); {hint}", fault(path))


def test_empty_files_and_aligned_files_of_unequal_length_are_named(tmp_path: Path) -> None:
    for path in (write(tmp_path / "a.tsv", ""), write(tmp_path / "a.tsv.gz", gzip.compress(b""))):
        assert fault(path) == f"{path}: contains no sentence pairs"
    for lines, shorter in (((3, 2), "b.de"), ((2, 3), "a.en")):
        left = write(tmp_path / "a.en", "a dog\n" * lines[0])
        right = write(tmp_path / "b.de", "ein Hund\n" * lines[1])
        assert fault(f"{left}::{right}") == f"{left}::{right}: {tmp_path / shorter} ends after line 2, the other file goes on"


def test_the_digest_of_a_folder_is_of_what_is_not_hidden(tmp_path: Path) -> None:
    (tmp_path / "cat").mkdir()
    (tmp_path / "cat/1.png").write_bytes(b"one")
    before = digest(str(tmp_path))
    (tmp_path / ".ipynb_checkpoints").mkdir()
    for name in (".DS_Store", "cat/._1.png", ".ipynb_checkpoints/1.png"):
        (tmp_path / name).write_bytes(b"hidden")
    assert digest(str(tmp_path)) == before
    (tmp_path / "cat/caf\udce9.png").write_bytes(b"two")  # its name is not UTF-8
    assert digest(str(tmp_path)) != before
