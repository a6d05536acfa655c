"""Tab-separated values: cells.

Where cells are in quotation marks it is CSV with tabs, as spreadsheets write it; elsewhere these are characters like others
(text/tab-separated-values of IANA), and a cell holds neither tabs nor line ends.
"""

from triptych_documents.encoding import decode
from triptych_documents.format import ReadOptions
from triptych_documents.formats.shared.limits import Bound
from triptych_documents.formats.shared.text_document import TextDocument
from triptych_documents.formats.tabular.csv import Dialect, is_quoted, table


class Tsv:
    """Reads .tsv."""

    name = "tsv"

    def read(self, data: bytes, options: ReadOptions) -> TextDocument:
        """As Format says."""
        Bound(options).check_marks(data)
        text, encoding = decode(data, options.encoding)
        return table(text, encoding, options, Dialect("\t", is_quoted(text, "\t")))


FORMAT = Tsv()
