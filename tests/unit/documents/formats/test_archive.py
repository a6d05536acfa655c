"""Replacing members of archives."""

import io
import struct
import zipfile

import pytest

from triptych_documents.errors import DamagedDocumentError
from triptych_documents.formats.office import archive as module
from triptych_documents.formats.office.archive import Archive

from .office import zipped

MEMBERS = {"mimetype": "plain", "a/one.xml": "<one/>" * 50, "two.bin": bytes(range(256)), "empty": ""}


def records(data: bytes) -> dict[str, bytes]:
    """Return the bytes of each member: its local header and everything up to the next one."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        infos = sorted(archive.infolist(), key=lambda info: info.header_offset)
        ends = [*(info.header_offset for info in infos[1:]), archive.start_dir]
        return {info.filename: data[info.header_offset : end] for info, end in zip(infos, ends, strict=True)}


def streamed() -> bytes:
    """Create an archive as written to a pipe, with data descriptors and a comment."""

    class Pipe(io.BytesIO):
        def seekable(self) -> bool:
            return False

    out = Pipe()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.comment = b"made by a pipe"
        for name, data in MEMBERS.items():
            with archive.open(zipfile.ZipInfo(name), "w", force_zip64=name == "two.bin") as file:
                file.write(data if isinstance(data, bytes) else data.encode())
    return out.getvalue()


@pytest.mark.parametrize("data", [zipped(MEMBERS, stored=["mimetype"]), streamed(), b"#!/bin/sh\n" + zipped(MEMBERS)])
def test_other_members_and_the_order_stay(data: bytes) -> None:
    new = Archive(data).replaced({"a/one.xml": b"<two/>" * 90, "empty": b"not any more"})
    before, after = records(data), records(new)
    assert list(after) == list(before)
    assert {name for name in before if before[name] != after[name]} == {"a/one.xml", "empty"}
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(io.BytesIO(new)) as archive:
        assert archive.testzip() is None
        assert archive.read("a/one.xml") == b"<two/>" * 90
        assert archive.read("empty") == b"not any more"
        assert archive.comment == old.comment
        assert [info.compress_type for info in archive.infolist()] == [info.compress_type for info in old.infolist()]
        assert [info.date_time for info in archive.infolist()] == [info.date_time for info in old.infolist()]


def test_a_member_is_read_within_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    bomb = zipped({"bomb.xml": bytes(6 * 2**20), "small": "text"})
    with pytest.raises(DamagedDocumentError, match=r"bomb.xml: unpacks to more than 4,194,304 bytes"):
        Archive(bomb).read("bomb.xml")
    monkeypatch.setattr(module, "MAX_UNPACKED", 10)
    archive = Archive(zipped({"a": "123456", "b": "123456"}))
    assert archive.read("a") == b"123456"
    with pytest.raises(DamagedDocumentError, match="b: unpacks to more than 4 bytes"):
        archive.read("b")


def overlapping() -> bytes:
    """Create a directory whose second member has the first one's bytes."""
    data = zipped({"a": "text", "b": "text"})
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        start, infos = archive.start_dir, archive.infolist()
    second = start + 46 + len(infos[0].filename)
    return data[: second + 42] + struct.pack("<L", 2) + data[second + 46 :]


def encrypted() -> bytes:
    """Create an archive with the flag of encryption."""
    data = bytearray(zipped({"a": "text"}))
    data[6] |= 1
    data[data.index(b"PK\1\2") + 8] |= 1
    return bytes(data)


def twice() -> bytes:
    """Create an archive with two members of one name."""
    return zipped({"a": "text", "b": "text"}).replace(b"b", b"a")


def test_names_with_a_leading_slash_are_read() -> None:
    """Members are never unpacked to files, and some libraries write their empty folders so."""
    assert Archive(zipped({"/folder/": "", "a": "text"})).read("a") == b"text"


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "not a zip archive, as such documents are: incomplete, or another kind of file"),
        (b"PK\3\4 and no more", "not a zip archive"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600), "encrypted with a password, or in the old binary format"),
        (zipped({"../a": "text"}), "leads out of the archive"),
        (twice(), "two members have the same name"),
        (overlapping(), "overlap"),
        (encrypted(), "encrypted with a password"),
        (zipped({"b": "text"}), "lacks this member"),
        (zipped({"a": "text" * 99}).replace(b"\x2b\x49\xad", b"\x00\x00\x00"), "cannot be unpacked"),
        (zipped({str(index): "" for index in range(10_001)}), "10,001 members, the maximum is 10,000"),
    ],
)
def test_implausible_archives_are_rejected(data: bytes, problem: str) -> None:
    with pytest.raises(DamagedDocumentError, match=problem):
        Archive(data).read("a")
