"""Names of WordprocessingML and its neighbours (ECMA-376, Office Open XML: transitional and strict)."""

_WORD = (
    "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}",
    "{http://purl.oclc.org/ooxml/wordprocessingml/main}",
)
_MATH = ("{http://schemas.openxmlformats.org/officeDocument/2006/math}", "{http://purl.oclc.org/ooxml/officeDocument/math}")
_DRAWING = ("{http://schemas.openxmlformats.org/drawingml/2006/main}", "{http://purl.oclc.org/ooxml/drawingml/main}")

_PREFIXES = (("w", _WORD), ("m", _MATH), ("a", _DRAWING))
_SHORT = {namespace: prefix for prefix, namespaces in _PREFIXES for namespace in namespaces}


def short(name: str) -> str:
    """`w:p` for an element or attribute of WordprocessingML, `m:` for mathematics, `a:` for drawings; others as they are."""
    namespace, closed, local = name.rpartition("}")
    prefix = _SHORT.get(namespace + closed)
    return f"{prefix}:{local}" if prefix else name


def prefix(tag: str) -> str:
    """What a tag has before its local name: "w:" of "<w:p ...>", "" where it has none."""
    name = tag[1:].split(None, 1)[0].rstrip("/>")
    return name[: name.find(":") + 1]
