"""Names of OpenDocument (OASIS, OpenDocument 1.3, part 3)."""

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
    """With the prefix that everybody uses, such as `text:p`; unknown ones as they are."""
    namespace, _, local = name.rpartition("}")
    prefix = _SHORT.get(namespace)
    return f"{prefix}:{local}" if prefix else name
