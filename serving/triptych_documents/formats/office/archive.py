"""Zip archives whose members can be replaced while all others stay byte for byte (PKWARE APPNOTE 6.3, sections 4.3 to 4.5).

Documents are not trusted: members are unpacked on demand, within limits, in memory only. The standard library parses and
unpacks; only the records of replaced members are rewritten.
"""

import io
import lzma
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import NamedTuple

from triptych_documents.errors import DamagedDocumentError

MAX_MEMBERS = 10_000
MAX_UNPACKED = 256 * 2**20  # total bytes of all unpacked members
MAX_RATIO = 200  # unpacked to packed bytes, for members larger than FREE_RATIO
FREE_RATIO = 4 * 2**20

_COMPOUND = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"  # Microsoft compound file
_LOCAL = struct.Struct("<4s5H3L2H")
_CENTRAL = struct.Struct("<4s6H3L5H2L")
_END = struct.Struct("<4s4H2LH")
_ENCRYPTED, _DESCRIPTOR = 0x1, 0x8  # general purpose bits
_ZIP64 = 0x1  # extra field
_BROKEN = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error, EOFError, RuntimeError, OSError, ValueError)


class _Entry(NamedTuple):
    info: zipfile.ZipInfo
    fields: tuple[int, ...]  # header fields without the signature
    name: bytes
    extra: bytes
    comment: bytes


class Archive:
    """A zip archive in memory. Raises DamagedDocumentError: not a zip archive, or not a plausible document."""

    def __init__(self, data: bytes) -> None:
        if data.startswith(_COMPOUND):
            raise DamagedDocumentError("encrypted with a password, or in the old binary format")
        try:
            self._zip = zipfile.ZipFile(io.BytesIO(data))
        except _BROKEN as error:
            raise DamagedDocumentError(
                "not a zip archive, as such documents are: incomplete, or another kind of file"
            ) from error
        self._data = data
        self._left = MAX_UNPACKED
        self._infos = {info.filename: info for info in self._zip.infolist()}
        self._check()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._infos)

    def read(self, name: str) -> bytes:
        """Unpack a member. Raises DamagedDocumentError: it is missing, encrypted, damaged or too large."""
        info = self._infos.get(name)
        if info is None:
            raise DamagedDocumentError("the archive lacks this member", name)
        if info.flag_bits & _ENCRYPTED:
            raise DamagedDocumentError("encrypted with a password", name)
        allowed = min(self._left, max(FREE_RATIO, info.compress_size * MAX_RATIO))
        data = self._unpacked(info, allowed + 1)
        if len(data) > allowed:
            raise DamagedDocumentError(f"unpacks to more than {allowed:,} bytes", name)
        self._left -= len(data)
        return data

    def replaced(self, members: Mapping[str, bytes]) -> bytes:
        """Return the archive with new contents of these members; all other members keep their bytes."""
        return self._written(list(self._entries()), members) if members else self._data

    def _check(self) -> None:
        infos = self._zip.infolist()
        if len(infos) > MAX_MEMBERS:
            raise DamagedDocumentError(f"{len(infos):,} members, the maximum is {MAX_MEMBERS:,}")
        if len(infos) != len(self._infos):
            raise DamagedDocumentError("two members have the same name")
        for name in self._infos:
            if ".." in name.replace("\\", "/").split("/"):
                raise DamagedDocumentError("a member's name leads out of the archive", repr(name))
        for info, start, end in self._records():
            if start < 0 or start + _LOCAL.size + len(info.orig_filename) + info.compress_size > end:
                raise DamagedDocumentError("members overlap or exceed the archive", info.filename)

    def _records(self) -> Iterator[tuple[zipfile.ZipInfo, int, int]]:
        """Yield members in byte order with the span from their local header to the next one or the directory."""
        infos = sorted(self._zip.infolist(), key=lambda info: info.header_offset)
        ends = [*(info.header_offset for info in infos[1:]), self._zip.start_dir]
        for info, end in zip(infos, ends, strict=False):
            yield info, info.header_offset, end

    def _unpacked(self, info: zipfile.ZipInfo, most: int) -> bytes:
        try:
            with self._zip.open(info) as member:
                return member.read(most)
        except _BROKEN as error:
            raise DamagedDocumentError(f"cannot be unpacked: {error}", info.filename) from error

    def _entries(self) -> Iterator[_Entry]:
        at = self._zip.start_dir
        for info in self._zip.infolist():
            _, *fields = _CENTRAL.unpack_from(self._data, at)  # zipfile has checked it
            at += _CENTRAL.size
            cut = [at, *(at := at + length for length in fields[9:12])]
            name, extra, comment = (self._data[start:end] for start, end in pairwise(cut))
            yield _Entry(info, tuple(fields), name, extra, comment)

    def _written(self, entries: list[_Entry], members: Mapping[str, bytes]) -> bytes:
        by_name = {entry.info.filename: entry for entry in entries}
        out, places = bytearray(), dict[str, tuple[int, int, int, int, int, int]]()
        for index, (info, start, end) in enumerate(self._records()):
            out += self._data[:start] if index == 0 else b""  # data before the archive
            new = members.get(info.filename)
            record, facts = (self._data[start:end], _facts(info)) if new is None else _record(by_name[info.filename], new)
            places[info.filename] = (*facts, len(out))
            out += record
        directory = b"".join(_header(entry, *places[entry.info.filename]) for entry in entries)
        comment = self._zip.comment
        end_record = _END.pack(b"PK\5\6", 0, 0, len(entries), len(entries), len(directory), len(out), len(comment))
        return bytes(out) + directory + end_record + comment


def _facts(info: zipfile.ZipInfo) -> tuple[int, int, int, int, int]:
    """Return flags, method, checksum, packed and unpacked size."""
    return info.flag_bits, info.compress_type, info.CRC, info.compress_size, info.file_size


def _record(entry: _Entry, new: bytes) -> tuple[bytes, tuple[int, int, int, int, int]]:
    """Return a member's local header and data, without data descriptor because the sizes are known."""
    info = entry.info
    method = zipfile.ZIP_STORED if info.compress_type == zipfile.ZIP_STORED else zipfile.ZIP_DEFLATED
    packed = new if method == zipfile.ZIP_STORED else zlib.compress(new, 6, -zlib.MAX_WBITS)
    facts = (info.flag_bits & ~_DESCRIPTOR, method, zlib.crc32(new), len(packed), len(new))
    flags, method, *sizes = facts
    times = entry.fields[4:6]
    header = _LOCAL.pack(b"PK\3\4", info.extract_version, flags, method, *times, *sizes, len(entry.name), 0)
    return header + entry.name + packed, facts


def _header(entry: _Entry, flags: int, method: int, crc: int, packed: int, unpacked: int, offset: int) -> bytes:
    made, needed, _, _, time, date, *_ = entry.fields
    disk, internal, external = 0, entry.fields[13], entry.fields[14]
    extra = _without_zip64(entry.extra)
    lengths = (len(entry.name), len(extra), len(entry.comment))
    fields = (made, needed, flags, method, time, date, crc, packed, unpacked, *lengths, disk, internal, external, offset)
    return _CENTRAL.pack(b"PK\1\2", *fields) + entry.name + extra + entry.comment


def _without_zip64(extra: bytes) -> bytes:
    """Remove the ZIP64 field: the header's own size fields suffice, as documents are far below 4 GiB."""
    kept, at = b"", 0
    while at + 4 <= len(extra):
        field, length = struct.unpack_from("<2H", extra, at)
        kept += b"" if field == _ZIP64 else extra[at : at + 4 + length]
        at += 4 + length
    return kept + extra[at:]
