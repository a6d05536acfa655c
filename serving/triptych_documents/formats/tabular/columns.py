"""Which columns of a table are translated."""

from collections.abc import Sequence

from triptych_documents.errors import OptionError
from triptych_documents.format import ReadOptions

MAX_SHOWN = 100  # characters of a name, which every cell of its column would have


class Columns:
    """What `columns` and `header` say of a table.

    Args:
        options: with both. Numbers count from 1; without any columns all are translated.
        first: record of the table.

    Raises:
        OptionError: the table has no column of such a name, or no header to look for one in.
    """

    def __init__(self, options: ReadOptions, first: Sequence[str]) -> None:
        names = [column for column in options.columns if not column.isdecimal()]
        self.header = bool(names) if options.header is None else options.header
        self._names = [name.strip() for name in first] if self.header else []
        if names and not self.header:
            raise OptionError("columns", f"{names[0]!r} is a name, and the table is said to have no header")
        self._all = not options.columns
        self._count = len(first)  # of columns, as far as the table is known
        self._chosen = {number: column for column in options.columns for number in self._numbers(column)}

    def count(self, cells: int) -> None:
        """A record has so many."""
        self._count = max(self._count, cells)

    def check(self) -> None:
        """At the table's end.

        Raises:
            OptionError: it has no column of such a number.
        """
        for number, column in self._chosen.items():
            if not 1 <= number <= self._count:
                raise OptionError("columns", f"there is no column {column[:MAX_SHOWN]}; the table has {self._count}")

    def _numbers(self, column: str) -> list[int]:
        if column.isdecimal():
            return [int(column[:MAX_SHOWN])]  # Python refuses to read numbers of thousands of digits
        found = [number for number, name in enumerate(self._names, 1) if name == column.strip()]
        if not found:
            raise OptionError("columns", f"there is no column {column!r}; the header has {', '.join(self._names) or 'none'}")
        return found

    def takes(self, number: int) -> bool:
        """Whether this column, from 1, is translated."""
        return self._all or number in self._chosen

    def name(self, number: int) -> str:
        """For people: as the header has it, or its number."""
        name = self._names[number - 1] if number <= len(self._names) else ""
        return name[:MAX_SHOWN] or str(number)
