"""PO and POT of gettext: messages are translated into their msgstr; every other line stays.

Only untranslated and fuzzy messages are translated, unless requested otherwise. A plural form is the translation of the message
or of its plural, as many as the language has.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from triptych_documents.findings import Finding
from triptych_documents.format import Document, ReadOptions
from triptych_documents.formats.po import text as potext
from triptych_documents.formats.po.catalog import Catalog, Entry, read_catalog
from triptych_documents.formats.shared.declared_languages import foreign_translations
from triptych_documents.formats.shared.message_codes import formats, joined_message, split_message
from triptych_documents.formats.shared.messages import with_messages
from triptych_documents.formats.shared.plurals import count, plural_forms
from triptych_documents.formats.shared.text_document import Span, UnitLimit, replaced
from triptych_documents.unit import Piece, Unit, changed
from triptych_text.languages import languages_differ

CREDITS = frozenset({"translator-credits", "translator_credits", "Your names", "Your emails"})  # translators' names
Changes = dict[Span, str]


@dataclass(frozen=True, slots=True)
class _Slot:
    entry: Entry
    is_plural: bool  # the unit is its plural
    lead: str  # leading white space, also of the translation
    tail: str  # trailing white space


@dataclass
class _Po:
    catalog: Catalog
    options: ReadOptions
    units: list[Unit] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    slots: list[_Slot] = field(default_factory=list)

    def read(self) -> "_Po":
        if self._is_foreign():
            return self
        for entry in self.catalog.entries:
            if self._is_asked(entry):
                self._enter(entry, entry.message, is_plural=False)
                self._enter(entry, entry.plural, is_plural=True)
        return self

    def render(self, translations: Mapping[int, Sequence[Piece]]) -> bytes:
        texts: dict[int, tuple[Entry, dict[bool, str]]] = {}
        for at, pieces in changed(self.units, translations).items():
            slot = self.slots[at]
            text = slot.lead + joined_message(pieces) + slot.tail
            texts.setdefault(id(slot.entry), (slot.entry, {}))[1][slot.is_plural] = text
        changes: Changes = {}
        for entry, found in texts.values():
            changes |= self._strings(entry, found) | self._flags(entry)
        if texts:
            changes |= self._header()
        return self.catalog.encoding.encode(replaced(self.catalog.text, changes.items()))

    def _is_foreign(self) -> bool:
        """Return whether the translations are in another language than requested, and keep them."""
        declared, wanted = self.catalog.fields.get("Language", ""), self.options.target_language
        is_translated = any(any(entry.strings) for entry in self.catalog.entries)
        if self.options.retranslate or not languages_differ(declared, wanted) or not is_translated:
            return False
        self.findings.append(foreign_translations(declared, wanted, "header"))
        return True

    def _is_asked(self, entry: Entry) -> bool:
        if entry.message in CREDITS or (entry.context or "").endswith("OF TRANSLATORS"):
            return False
        return self.options.retranslate or entry.is_fuzzy or not all(entry.strings)

    def _enter(self, entry: Entry, message: str, *, is_plural: bool) -> None:
        lead, pieces, tail = split_message(message, self.catalog.fields.get("X-Accelerator-Marker", "")[:1] or potext.SIGNS)
        if not pieces:
            return
        where = f"line {entry.line + is_plural}"
        self.units.append(Unit(pieces, where, keeps_space=True))
        self.slots.append(_Slot(entry, is_plural, lead, tail))

    def _strings(self, entry: Entry, found: Mapping[bool, str]) -> Changes:
        if not entry.plural:
            return {entry.span: self._written("msgstr", found[False])}
        strings = self._forms(entry, found)
        written = [self._written(f"msgstr[{form}]", string) for form, string in enumerate(strings)]
        return {entry.span: self.catalog.line_end.join(written)}

    def _forms(self, entry: Entry, found: Mapping[bool, str]) -> list[str]:
        """Return one string per plural form; existing strings are kept unless all is translated again."""
        number = count(self._plural_forms()) or 2
        kept = [*(() if entry.is_fuzzy else entry.strings), *[""] * number]
        many = found.get(True)
        # A form for 1, 21, 31 needs the number, which a form for 1 only may leave out.
        same = formats(entry.message) == formats(entry.plural)
        one = many if number == 1 or (number > 2 and not same) else found.get(False)
        new = [one, *[many] * (number - 1)]
        return [
            was if text is None or (was and not self.options.retranslate) else text
            for was, text in zip(kept, new, strict=False)
        ]

    def _plural_forms(self) -> str:
        """Return the header's value if it is for the target language."""
        fields, wanted = self.catalog.fields, self.options.target_language
        declared = fields.get("Plural-Forms", "")
        is_valid = count(declared) and not languages_differ(fields.get("Language", ""), wanted)
        return declared if is_valid else plural_forms(wanted)

    def _written(self, keyword: str, text: str) -> str:
        return potext.string(keyword, text, width=self.catalog.width, line_end=self.catalog.line_end)

    def _flags(self, entry: Entry) -> Changes:
        """Set or remove the fuzzy flag, and remove previous messages."""
        changes: Changes = dict.fromkeys(entry.previous, "")
        if self.options.mark_fuzzy and not entry.is_fuzzy:
            at = entry.flag_lines[0][0] if entry.flag_lines else entry.start
            line = "#, fuzzy" + self.catalog.line_end if not entry.flag_lines else "#, fuzzy,"
            changes[at, at + (2 if entry.flag_lines else 0)] = line
        if entry.is_fuzzy and not self.options.mark_fuzzy:
            changes |= self._unfuzzied(entry)
        return changes

    def _unfuzzied(self, entry: Entry) -> Changes:
        changes: Changes = {}
        text = self.catalog.text
        for start, end in entry.flag_lines:
            flags = [flag.strip() for flag in text[start:end].strip().removeprefix("#,").split(",")]
            others = [flag for flag in flags if flag and flag != "fuzzy"]
            if "fuzzy" not in flags:
                continue
            if others:
                changes[start, end] = "#, " + ", ".join(others)
            else:
                changes[start, end + 2 if text.startswith("\r\n", end) else min(end + 1, len(text))] = ""
        return changes

    def _header(self) -> Changes:
        """Set language and plural forms if the header is a template or of another language."""
        header, wanted = self.catalog.header, self.options.target_language
        if header is None or not wanted:
            return {}
        fields = self.catalog.fields
        new: dict[str, str] = {}
        if not fields.get("Language") or languages_differ(fields["Language"], wanted):
            new["Language"] = wanted.replace("-", "_")
        if self._plural_forms() != fields.get("Plural-Forms", ""):
            new["Plural-Forms"] = self._plural_forms()
        if fields.get("Content-Type", "").endswith("=CHARSET"):
            new["Content-Type"] = fields["Content-Type"].removesuffix("CHARSET") + "UTF-8"
        if not new:
            return {}
        start, end = header.span
        raw = potext.with_fields(self.catalog.text[start:end], new, self.catalog.line_end)
        return {header.span: raw} | self._unfuzzied(header)


def read(data: bytes, options: ReadOptions) -> Document:
    """See FormatInfo.read."""
    bound = UnitLimit(options)
    bound.check_marks(data, b"<")
    bound.check_marks(data, b"msgid", each=1)
    return with_messages(_Po(read_catalog(data, options.encoding, potext.WIDTH), options).read(), bound)
