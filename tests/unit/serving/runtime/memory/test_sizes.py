"""Numbers of bytes."""

import pytest

from triptych_serving.runtime.memory.sizes import parse_bytes, show_bytes


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (5 << 20, "5 MiB"), (141 << 30, "141 GiB"), (3 << 39, "1.5 TiB")],
)
def test_bytes_are_formatted(count: int, text: str) -> None:
    assert show_bytes(count) == text
    assert parse_bytes(text or "0 B") == count if count else True


@pytest.mark.parametrize("text", ["", "0", "0.5", "-3", "5 MB", "1 2", "infGiB"])
def test_malformed_sizes_are_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="is not a number of bytes such as 8GiB"):
        parse_bytes(text)
