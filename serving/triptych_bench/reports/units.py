"""Numbers for readers: three significant digits, with a suitable unit."""

import math

NONE = "–"
BIG = 1024


def number(value: float | None) -> str:
    """Format as `1,234`, `123`, `12.3`, `1.23` or `0.0123`."""
    if value is None:
        return NONE
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    rounded = float(f"{value:.3g}")  # 9.996 is 10.0, not 10.00
    decimals = max(0, 2 - math.floor(math.log10(abs(rounded))))
    return f"{value:,.{min(decimals, 6)}f}"


def duration(seconds: float | None) -> str:
    """Format as `850 µs`, `12.3 ms` or `1.23 s`."""
    if seconds is None:
        return NONE
    if seconds == 0:
        return "0"
    size = abs(seconds)
    if size < 0.9995e-3:
        return f"{number(seconds * 1e6)} µs"
    return f"{number(seconds * 1e3)} ms" if size < 0.9995 else f"{number(seconds)} s"


def millis(seconds: float | None) -> str:
    """Format milliseconds without a unit, for columns that name it."""
    return NONE if seconds is None else number(seconds * 1e3)


def size(count: float | None) -> str:
    """Format bytes as `512 MiB`."""
    if count is None:
        return NONE
    units = ("B", "KiB", "MiB", "GiB", "TiB")
    step = min(len(units) - 1, int(math.log(max(count, 1), BIG)))
    return f"{number(count / BIG**step)} {units[step]}"


def percent(fraction: float) -> str:
    """Format as `12.3 %`."""
    return f"{number(fraction * 100)} %"


def named(name: str, value: float) -> tuple[str, str]:
    """Return label and value of a figure whose name ends with its unit: `p90_seconds`, `max_rate`, `memory_bytes`."""
    for ending, shown in (("_seconds", duration), ("_bytes", size), ("_per_second", _rate)):
        if name.endswith(ending):
            return _words(name.removesuffix(ending)), shown(value)
    if name == "confidence":
        return name, percent(value)
    return _words(name), (_rate if name.endswith(("rate", "throughput", "goodput")) else number)(value)


def _rate(value: float) -> str:
    return f"{number(value)}/s"


def _words(name: str) -> str:
    return name.replace("_", " ")


def unit_of(seconds: float) -> tuple[float, str]:
    """Return factor and name of the unit for an axis that ends at `seconds`."""
    if seconds < 2e-3:
        return 1e6, "µs"
    return (1e3, "ms") if seconds < 10 else (1.0, "s")
