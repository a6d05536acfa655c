"""Reports as JSON: the file that other tools, and `triptych bench compare`, read.

The members are those of `triptych_bench.results.Report`, behind `format`, which says what the file is. `version` grows when
a member changes its meaning or goes away; a reader refuses what it does not know, so that nothing is compared by mistake.
"""

import dataclasses
import json
from pathlib import Path
from typing import Any

from triptych_bench.reports import files
from triptych_bench.reports.errors import ReportError
from triptych_bench.reports.members import build
from triptych_bench.results import Report

FORMAT = "triptych-bench"
VERSION = 1


def dumps(report: Report) -> str:
    """The file's text.

    Raises:
        ValueError: a number is not finite.
    """
    value = {"format": FORMAT, **dataclasses.asdict(report)}
    return json.dumps(value, indent=1, allow_nan=False) + "\n"


def write(report: Report, path: Path) -> None:
    """UTF-8, over what is there."""
    files.write(path, dumps(report))


def read(path: Path) -> Report:
    """What `write` has written.

    Raises:
        ReportError: the file cannot be opened, is no report, is of another version, or has members that do not belong there.
    """
    try:
        return loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ReportError(f"{path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise ReportError(f"{path}: not UTF-8 at byte {error.start}") from error
    except ReportError as error:
        raise ReportError(f"{path}: {error}") from error


def loads(text: str) -> Report:
    """What `dumps` has made.

    Raises:
        ReportError: as for `read`.
    """
    value = _parsed(text)
    if not isinstance(value, dict) or value.get("format") != FORMAT:
        raise ReportError(f'this is no report of `triptych bench`: there is no "format": "{FORMAT}"')
    if value.get("version") != VERSION:
        raise ReportError(f"version: the report is of version {value.get('version')!r}, this program reads version {VERSION}")
    report: Report = build(Report, {name: one for name, one in value.items() if name != "format"}, "")
    return report


def _parsed(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_refuse)
    except json.JSONDecodeError as error:
        raise ReportError(f"line {error.lineno}, column {error.colno}: not JSON: {error.msg}") from error
    except (RecursionError, ValueError) as error:  # too deep, or an integer of too many digits
        raise ReportError(f"not JSON that can be read: {error}") from error


def _refuse(constant: str) -> float:
    raise ReportError(f"{constant} is not JSON")
