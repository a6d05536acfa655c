"""Compare triptych/v1/*.proto with the contract of the last release and report breaking changes.

python protos/breaking.py             exit 1, with one line for each breaking change
python protos/breaking.py --accept    for a release: make today's protos the contract

The contract is contract/triptych.v1.txtpb, a FileDescriptorSet. The rules have the names and the strictness of `buf breaking`
with category FILE, under which the callers' source code keeps compiling too. Additions are not breaking.

Needs grpcio-tools, from the extra `dev`.
"""

from __future__ import annotations

import argparse
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from google.protobuf import text_format
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
    MethodDescriptorProto,
    OneofDescriptorProto,
    ServiceDescriptorProto,
)
from grpc_tools import protoc  # type: ignore[import-untyped]

ROOT = Path(__file__).resolve().parent
PACKAGE = Path("triptych/v1")
CONTRACT = ROOT / "contract/triptych.v1.txtpb"

Named = TypeVar(
    "Named",
    FileDescriptorProto,
    DescriptorProto,
    EnumDescriptorProto,
    ServiceDescriptorProto,
    MethodDescriptorProto,
    OneofDescriptorProto,
)


@dataclass(frozen=True)
class Break:
    """A change that breaks callers built with the old contract."""

    rule: str  # buf's name of the rule
    where: str  # full name
    what: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.where}: {self.what}"


Breaks = Iterator[Break]


def compare(old: FileDescriptorSet, new: FileDescriptorSet) -> list[Break]:
    """List all breaking changes, in the old contract's order."""
    return list(_each(old.file, new.file, "FILE_NO_DELETE", "", _file))


def _each(
    old: Iterable[Named], new: Iterable[Named], rule: str, prefix: str, check: Callable[[Named, Named, str], Breaks] | None
) -> Breaks:
    """Require every named element of `old` in `new`, and compare the two elements of one name with `check`."""
    found = {one.name: one for one in new}
    for one in old:
        where = f"{prefix}.{one.name}" if prefix else one.name
        if one.name not in found:
            yield Break(rule, where, "it was removed")
        elif check is not None:
            yield from check(one, found[one.name], where)


def _same(rule: str, where: str, what: str, old: Any, new: Any) -> Breaks:
    if old != new:
        yield Break(rule, where, f"{what} was {old!r}, is {new!r}")


def _file(old: FileDescriptorProto, new: FileDescriptorProto, where: str) -> Breaks:
    yield from _same("FILE_SAME_PACKAGE", where, "the package", old.package, new.package)
    yield from _same("FILE_SAME_SYNTAX", where, "the syntax", old.syntax or "proto2", new.syntax or "proto2")
    for option in sorted({field.name for one in (old, new) for field, _ in one.options.ListFields()}):
        rule = f"FILE_SAME_{option.upper()}"
        yield from _same(rule, where, f"option {option}", getattr(old.options, option), getattr(new.options, option))
    yield from _each(old.message_type, new.message_type, "MESSAGE_NO_DELETE", old.package, _message)
    yield from _each(old.enum_type, new.enum_type, "ENUM_NO_DELETE", old.package, _enum)
    yield from _each(old.service, new.service, "SERVICE_NO_DELETE", old.package, _service)


def _message(old: DescriptorProto, new: DescriptorProto, where: str) -> Breaks:
    yield from _each(old.nested_type, new.nested_type, "MESSAGE_NO_DELETE", where, _message)
    yield from _each(old.enum_type, new.enum_type, "ENUM_NO_DELETE", where, _enum)
    yield from _each(_oneofs(old), _oneofs(new), "ONEOF_NO_DELETE", where, None)
    fields = {field.number: field for field in new.field}
    for field in old.field:
        if field.number in fields:
            yield from _field(_Field(old, field), _Field(new, fields[field.number]), f"{where}.{field.name}")
        else:
            yield Break("FIELD_NO_DELETE", f"{where}.{field.name}", f"field {field.number} was removed")
    yield from _reserved(old, new, 0, "RESERVED_MESSAGE_NO_DELETE", where)


@dataclass(frozen=True)
class _Field:
    """A field with its message, in terms of the proto language."""

    message: DescriptorProto
    proto: FieldDescriptorProto

    @property
    def kind(self) -> str:
        name = FieldDescriptorProto.Type.Name(self.proto.type).removeprefix("TYPE_").lower()
        return self.proto.type_name.lstrip(".") or name

    @property
    def cardinality(self) -> str:
        if self.proto.HasField("oneof_index"):  # optional fields have one of their own
            return "optional"
        label = FieldDescriptorProto.Label.Name(self.proto.label).removeprefix("LABEL_").lower()
        return "implicit" if label == "optional" else label

    @property
    def oneof(self) -> str:
        if not self.proto.HasField("oneof_index") or self.proto.proto3_optional:
            return ""
        return self.message.oneof_decl[self.proto.oneof_index].name


def _field(old: _Field, new: _Field, where: str) -> Breaks:
    yield from _same("FIELD_SAME_NAME", where, "the name", old.proto.name, new.proto.name)
    yield from _same("FIELD_SAME_JSON_NAME", where, "the JSON name", old.proto.json_name, new.proto.json_name)
    yield from _same("FIELD_SAME_TYPE", where, "the type", old.kind, new.kind)
    yield from _same("FIELD_SAME_CARDINALITY", where, "the cardinality", old.cardinality, new.cardinality)
    yield from _same("FIELD_SAME_ONEOF", where, "the oneof", old.oneof, new.oneof)
    yield from _same("FIELD_SAME_DEFAULT", where, "the default", old.proto.default_value, new.proto.default_value)
    yield from _same("FIELD_SAME_JSTYPE", where, "jstype", old.proto.options.jstype, new.proto.options.jstype)


def _oneofs(message: DescriptorProto) -> list[OneofDescriptorProto]:
    """List a message's oneofs, without those that the compiler makes for optional fields."""
    made = {field.oneof_index for field in message.field if field.proto3_optional}
    return [one for index, one in enumerate(message.oneof_decl) if index not in made]


def _enum(old: EnumDescriptorProto, new: EnumDescriptorProto, where: str) -> Breaks:
    names: dict[int, list[str]] = {}
    for value in new.value:
        names.setdefault(value.number, []).append(value.name)
    for value in old.value:
        if value.number not in names:
            yield Break("ENUM_VALUE_NO_DELETE", f"{where}.{value.name}", f"value {value.number} was removed")
        elif value.name not in names[value.number]:
            yield from _same("ENUM_VALUE_SAME_NAME", f"{where}.{value.name}", "the name", value.name, names[value.number][0])
    yield from _reserved(old, new, 1, "RESERVED_ENUM_NO_DELETE", where)


def _reserved(
    old: DescriptorProto | EnumDescriptorProto, new: DescriptorProto | EnumDescriptorProto, last: int, rule: str, where: str
) -> Breaks:
    """Require that reserved names and numbers stay reserved; `last` is 1 where ranges include their end."""
    for name in sorted(set(old.reserved_name) - set(new.reserved_name)):
        yield Break(rule, where, f"{name!r} is no longer reserved")
    ranges = [(one.start, one.end + last) for one in new.reserved_range]
    for one in old.reserved_range:
        if not _covered(one.start, one.end + last, ranges):
            yield Break(rule, where, f"{one.start} to {one.end + last - 1} are no longer all reserved")


def _covered(start: int, end: int, ranges: list[tuple[int, int]]) -> bool:
    for first, last in sorted(ranges):
        if first <= start < last:
            start = last
    return start >= end


def _service(old: ServiceDescriptorProto, new: ServiceDescriptorProto, where: str) -> Breaks:
    yield from _each(old.method, new.method, "RPC_NO_DELETE", where, _method)


def _method(old: MethodDescriptorProto, new: MethodDescriptorProto, where: str) -> Breaks:
    yield from _same("RPC_SAME_REQUEST_TYPE", where, "the request", old.input_type, new.input_type)
    yield from _same("RPC_SAME_RESPONSE_TYPE", where, "the response", old.output_type, new.output_type)
    yield from _same("RPC_SAME_CLIENT_STREAMING", where, "client streaming", old.client_streaming, new.client_streaming)
    yield from _same("RPC_SAME_SERVER_STREAMING", where, "server streaming", old.server_streaming, new.server_streaming)
    level = old.options.idempotency_level, new.options.idempotency_level
    yield from _same("RPC_SAME_IDEMPOTENCY_LEVEL", where, "the idempotency level", *level)


def compiled(root: Path) -> FileDescriptorSet:
    """Compile the protos below `root`, without comments and imports.

    Raises:
        ValueError: they do not compile; the compiler's report goes to stderr.
    """
    names = sorted(path.relative_to(root).as_posix() for path in (root / PACKAGE).glob("*.proto"))
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "set"
        folders = root, sysconfig.get_path("purelib"), Path(protoc.__file__).parent / "_proto"
        if protoc.main(["protoc", *(f"-I{folder}" for folder in folders), f"--descriptor_set_out={out}", *names]):
            raise ValueError(f"the protos below {root} do not compile")
        return FileDescriptorSet.FromString(out.read_bytes())


def read_contract(path: Path = CONTRACT) -> FileDescriptorSet:
    """Read the contract of the last release."""
    return text_format.Parse(path.read_text("utf-8"), FileDescriptorSet())


def main() -> int:
    parser = argparse.ArgumentParser(description="Compare the protos with the contract of the last release.")
    parser.add_argument("--accept", action="store_true", help="make them the contract")
    accept = parser.parse_args().accept

    protos = compiled(ROOT)
    if accept:
        head = "# proto-file: google/protobuf/descriptor.proto\n# proto-message: FileDescriptorSet\n"
        CONTRACT.write_text(head + text_format.MessageToString(protos), "utf-8")
        return 0
    breaks = compare(read_contract(), protos)
    sys.stderr.writelines(f"{one}\n" for one in breaks)
    return 1 if breaks else 0


if __name__ == "__main__":
    sys.exit(main())
