"""Packages of Office Open XML: parts and their relationships (ECMA-376, part 2)."""

import posixpath
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import unquote

from triptych_documents.errors import DamagedDocumentError, UnknownFormatError
from triptych_documents.format import ReadOptions
from triptych_documents.formats.office.archive import Archive
from triptych_documents.formats.office.languages import OfficeLanguage, office_language
from triptych_documents.formats.office.parts import Part, XmlPart, ZippedDocument, described, opened, signatures
from triptych_documents.formats.shared.text_document import UnitLimit

_TYPES = "[Content_Types].xml"
_ROOT = "_rels/.rels"
_BEFORE, _BEHIND = "application/vnd.", ".main+xml"  # in content types of main parts


@dataclass(frozen=True, slots=True)
class Relation:
    """A relationship to another part of the package."""

    kind: str  # last part of its type, such as "styles"
    target: str  # the member


class Package:
    """A document of Word, PowerPoint or Excel.

    Args:
        main: the main part, unless the package names another one.
        kinds: content types of the main part, without "application/vnd." and ".main+xml". Macros are kept like all members.
        what: such as "Word document", for errors.

    Raises:
        DamagedDocumentError: not such a package.
        UnknownFormatError: a document of another type.
    """

    def __init__(self, data: bytes, options: ReadOptions, main: str, kinds: Collection[str], what: str) -> None:
        self.archive, self.bound = Archive(data), UnitLimit(options)
        self.target: OfficeLanguage | None = office_language(options.target_language)
        self._root = list(self._relations(""))
        self.main = next((relation.target for relation in self._root if relation.kind == "officeDocument"), main)
        self._check_type(kinds, what)

    def linked(self, *kinds: str) -> list[Relation]:
        """Return the relationships of these kinds, from the main part and from what it leads to; each part once."""
        found: dict[str, Relation] = {}
        waiting = [self.main]
        while waiting:
            links = [
                link for link in self._relations(waiting.pop()) if link.kind in kinds and link.target in self.archive.names
            ]
            new = {link.target: link for link in links if link.target not in found and link.target != self.main}
            found |= new
            waiting += new
        return sorted(found.values(), key=lambda link: (kinds.index(link.kind), _numbered(link.target)))

    def opened(self, name: str) -> XmlPart:
        return opened(self.archive, name, self.bound)

    def document(self, parts: Sequence[Part]) -> ZippedDocument:
        """Return the document of these parts, and of its title and subject."""
        core = next((relation.target for relation in self._root if relation.kind == "core-properties"), "")
        more = described(self.archive, core, self.bound, self.target)
        return ZippedDocument(self.archive, [*parts, *more], signatures(self.archive, "_xmlsignatures/"))

    def _relations(self, part: str) -> Iterator[Relation]:
        folder, name = posixpath.split(part)
        member = posixpath.join(folder, "_rels", f"{name}.rels") if part else _ROOT
        if member not in self.archive.names:
            return
        tree = opened(self.archive, member).tree
        for element in tree.children(tree.root()):
            attributes = tree.tokens[element].attributes
            if attributes.get("TargetMode") != "External":
                target = posixpath.normpath(posixpath.join("/", folder, unquote(attributes.get("Target", ""))))
                yield Relation(attributes.get("Type", "").rpartition("/")[2], target.lstrip("/"))

    def _check_type(self, kinds: Collection[str], what: str) -> None:
        if _TYPES not in self.archive.names or self.main not in self.archive.names:
            raise DamagedDocumentError(f"a zip archive, but no {what}")
        tree = opened(self.archive, _TYPES).tree
        types = [tree.tokens[element].attributes for element in tree.children(tree.root())]
        named = (each for each in types if each.get("PartName", "").lower() == f"/{self.main}".lower())
        found = next(named, {}).get("ContentType", "")
        if found and found.removeprefix(_BEFORE).removesuffix(_BEHIND) not in kinds:
            raise UnknownFormatError(f"document type {found!r} is not supported, only {what}s")


def _numbered(name: str) -> list[tuple[str, int]]:
    """Return a key that sorts slide2.xml before slide10.xml."""
    return [(text, int(number or 0)) for text, number in re.findall(r"(\D*)(\d{0,9})", name)]
