"""Which columns of a table are translated."""

from collections.abc import Sequence

from triptych_documents.errors import OptionError
from triptych_documents.format import ReadOptions


class Columns:
    """What `columns` and `header` say of a table.

    Args:
        options: with both. Numbers count from 1; without any columns all are translated.
        records: the table's.

    Raises:
        OptionError: the table has no such column, or no header to look for a name in.
    """

    def __init__(self, options: ReadOptions, records: Sequence[Sequence[str]]) -> None:
        names = [column for column in options.columns if not column.isdecimal()]
        self.header = bool(names) if options.header is None else options.header
        self._names = [name.strip() for name in records[0]] if self.header and records else []
        if names and not self.header:
            raise OptionError("columns", f"{names[0]!r} is a name, and the table is said to have no header")
        count = max(map(len, records), default=0)
        self._all = not options.columns
        self._chosen = {number for column in options.columns for number in self._numbers(column, count)}

    def _numbers(self, column: str, count: int) -> list[int]:
        if column.isdecimal():
            if not 1 <= int(column) <= count:
                raise OptionError("columns", f"there is no column {column}; the table has {count}")
            return [int(column)]
        found = [number for number, name in enumerate(self._names, 1) if name == column.strip()]
        if not found:
            raise OptionError("columns", f"there is no column {column!r}; the header has {', '.join(self._names) or 'none'}")
        return found

    def takes(self, number: int) -> bool:
        """Whether this column, from 1, is translated."""
        return self._all or number in self._chosen

    def name(self, number: int) -> str:
        """For people: as the header has it, or its number."""
        return self._names[number - 1] if number <= len(self._names) and self._names[number - 1] else str(number)
