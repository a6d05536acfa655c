"""Element trees of XML texts."""

from collections.abc import Iterator, Sequence

from triptych_documents.formats.shared.xml import MAX_DEPTH, XmlToken, XmlTokenKind, tokens


class XmlTree:
    """Element tree of an XML text; an element is identified by the index of its start token. Raises as `tokens` does."""

    def __init__(self, text: str, max_depth: int = MAX_DEPTH) -> None:
        self.text = text
        self.tokens: Sequence[XmlToken] = tokens(text, max_depth=max_depth)
        self._ends: dict[int, int] = {}
        opened: list[int] = []
        for index, token in enumerate(self.tokens):
            if token.kind is XmlTokenKind.START:
                opened.append(index)
            elif token.kind is XmlTokenKind.END:
                self._ends[opened.pop()] = index
            elif token.kind is XmlTokenKind.EMPTY:
                self._ends[index] = index

    def root(self) -> int:
        return next(index for index, token in enumerate(self.tokens) if token.opens)

    def end(self, element: int) -> int:
        """Return the index of the end token; the same index for an empty element."""
        return self._ends[element]

    def span(self, element: int) -> tuple[int, int]:
        return self.tokens[element].start, self.tokens[self._ends[element]].end

    def inside(self, element: int) -> tuple[int, int]:
        """Return the span between the tags; empty and after the tag for an empty element."""
        first, last = self.tokens[element], self.tokens[self._ends[element]]
        return (first.end, last.end if first is last else last.start)

    def nodes(self, element: int) -> Iterator[int]:
        """Yield children: elements and all other tokens."""
        index, end = element + 1, self._ends[element]
        while index < end:
            yield index
            index = self._ends.get(index, index) + 1

    def children(self, element: int) -> Iterator[int]:
        return (index for index in self.nodes(element) if self.tokens[index].opens)

    def within(self, element: int) -> Iterator[int]:
        """Yield all descendant elements in order."""
        return (index for index in range(element + 1, self._ends[element]) if self.tokens[index].opens)

    def characters(self, element: int) -> str:
        return "".join(token.text for token in self.tokens[element : self._ends[element]])

    def tag(self, element: int) -> str:
        return self.text[self.tokens[element].start : self.tokens[element].end]

    def raw(self, element: int) -> str:
        start, end = self.span(element)
        return self.text[start:end]
