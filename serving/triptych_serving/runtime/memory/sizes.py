"""Formatting and parsing of byte counts."""

UNITS = {"TiB": 1 << 40, "GiB": 1 << 30, "MiB": 1 << 20, "KiB": 1 << 10, "B": 1}


def show_bytes(count: int) -> str:
    """Format a number of bytes, such as `1.5 GiB`."""
    unit = next((name for name, size in UNITS.items() if count >= size), "B")
    return f"{count / UNITS[unit]:.1f}".removesuffix(".0") + f" {unit}"


def parse_bytes(text: str) -> int:
    """Parse `8GiB`, `1.5 GiB` or `1073741824`. Raises ValueError: the text is malformed, or 0."""
    stripped = text.strip()
    unit = next((name for name in UNITS if stripped.endswith(name)), "")
    try:
        count = float(stripped.removesuffix(unit)) * UNITS.get(unit, 1)
        if not 1 <= count < 1 << 60:
            raise ValueError
    except ValueError:
        raise ValueError(f"{text!r} is not a number of bytes such as 8GiB or 500MiB") from None
    return int(count)
