"""Names and text styles of OpenDocument (OASIS, OpenDocument 1.3, part 3, 16.27 and 20)."""

from collections.abc import Iterator, Mapping

from triptych_documents.formats.office.atoms import Style
from triptych_documents.formats.office.languages import OfficeLanguage
from triptych_documents.formats.office.parts import Edit, Tree, constant
from triptych_documents.formats.shared.xml import attribute_spans, with_attribute

_OASIS = "{urn:oasis:names:tc:opendocument:xmlns:"
_SHORT = {
    f"{_OASIS}office:1.0": "office",
    f"{_OASIS}text:1.0": "text",
    f"{_OASIS}style:1.0": "style",
    f"{_OASIS}xsl-fo-compatible:1.0": "fo",
    f"{_OASIS}manifest:1.0": "manifest",
    f"{_OASIS}meta:1.0": "meta",
    "{http://purl.org/dc/elements/1.1/": "dc",
    "{http://openoffice.org/2009/office": "officeooo",
}


def short(name: str) -> str:
    """Return a name with its usual prefix, such as `text:p`; unknown names unchanged."""
    namespace, _, local = name.rpartition("}")
    prefix = _SHORT.get(namespace)
    return f"{prefix}:{local}" if prefix else name


def attributes_of(tree: Tree, element: int) -> dict[str, str]:
    """Return the attributes of an element by short name."""
    return {short(name): value for name, value in tree.tokens[element].attributes.items()}


PLAIN = Style("", "", "")

_UNSEEN = {"officeooo:rsid", "officeooo:paragraph-rsid"}
_LANGUAGES = ("language", "country", "script", "rfc-language-tag")  # also with -asian, -complex; in fo: and style:
_INKED = ("style:text-underline-style", "style:text-line-through-style", "style:text-overline-style", "fo:background-color")
_SUFFIX = {"western": "", "asian": "-asian", "complex": "-complex"}
_NO_LANGUAGE = {"", "none", "zxx", "und", "mul"}


class OdtStyles:
    """Styles of spans by name; later trees take precedence."""

    def __init__(self, *trees: Tree) -> None:
        self._looks: dict[str, str] = {}
        self._inked: set[str] = set()
        for tree in trees:
            for section in ("office:styles", "office:automatic-styles"):
                for style in _styles(tree, section):
                    self._learn(tree, style, named=section == "office:styles")

    def within(self, outer: Style, tree: Tree, span: int) -> Style:
        """Return the style of the text directly inside of a span that is inside of another style."""
        attributes = attributes_of(tree, span)
        name = attributes.pop("text:style-name", "")
        tag = tree.tag(span)
        look = self._looks.get(name, name) + (tag if attributes else "")
        if not look:
            return outer
        closing = f"</{tag[1:-1].split(None, 1)[0]}>"
        return Style(f"{outer.key}<{look}>", outer.opening + tag, closing + outer.closing, outer.inked or name in self._inked)

    def _learn(self, tree: Tree, style: int, named: bool) -> None:
        attributes = attributes_of(tree, style)
        if attributes.get("style:family") != "text":
            return
        name, parent = attributes.get("style:name", ""), attributes.get("style:parent-style-name", "")
        properties = dict(_properties(tree, style))
        self._looks[name] = name if named else _look(parent, properties)
        if any(properties.get(key, "none") not in ("none", "transparent") for key in _INKED):
            self._inked.add(name)


def _look(parent: str, properties: Mapping[str, str]) -> str:
    """Return the appearance of an automatic style; "" if it only sets a language or records an edit."""
    return " ".join((*([parent] if parent else []), *(f"{key}={value}" for key, value in sorted(properties.items()))))


def _styles(tree: Tree, section: str) -> Iterator[int]:
    for part in tree.children(tree.root()):
        if short(tree.tokens[part].name) == section:
            yield from tree.children(part)


def _properties(tree: Tree, style: int) -> Iterator[tuple[str, str]]:
    for child in tree.children(style):
        for key, value in tree.tokens[child].attributes.items():
            name = short(key)
            if name not in _UNSEEN and not name.rpartition(":")[2].startswith(_LANGUAGES):
                yield name, value


def default_language(tree: Tree) -> str:
    """Return the language of the paragraphs according to the document's styles, "" if unknown."""
    for style in _styles(tree, "office:styles"):
        attributes = attributes_of(tree, style)
        if attributes.get("style:family") == "paragraph" and "style:name" not in attributes:
            found = (tree.tokens[child].attributes.items() for child in tree.children(style))
            return next((value for items in found for key, value in items if short(key) == "fo:language"), "")
    return ""


def in_language(tree: Tree, source: OfficeLanguage | None, target: OfficeLanguage) -> Iterator[Edit]:
    """Yield edits that change styles from the source language (None: any) to the target language."""
    for index, token in enumerate(tree.tokens):
        if token.opens and short(token.name) == "style:text-properties":
            tag = tree.tag(index)
            new = _in_language(tag, source, target)
            if new != tag:
                yield constant(token.start, token.end, new)


def _in_language(tag: str, source: OfficeLanguage | None, target: OfficeLanguage) -> str:
    spans = attribute_spans(tag)
    names = {name.rpartition(":")[2]: name for name in spans}
    language, country = (names.get(name + _SUFFIX[target.script]) for name in ("language", "country"))
    if language is None:
        return tag
    was = tag[slice(*spans[language])]
    same_script = source is not None and source.script == target.script
    if was in _NO_LANGUAGE or (same_script and source is not None and was != source.language):
        return tag
    new = with_attribute(tag, language, target.language.partition("-")[0])
    return with_attribute(new, country, target.country or "none") if country else new
