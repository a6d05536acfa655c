"""Addresses to listen on."""

import pytest

from triptych_serving.address import check_free, format_address
from triptych_serving.errors import PortError


def test_format() -> None:
    assert format_address("::1", 8001) == format_address("[::1]", "8001") == "[::1]:8001"
    assert format_address("localhost", 8001) == "localhost:8001"


@pytest.mark.parametrize("host", ["", "unix:/tmp/x"])
def test_what_is_no_host_is_named_with_a_remedy(host: str) -> None:
    remedy = "give an address or name of this machine; unix sockets are not supported"
    with pytest.raises(PortError, match=f"^--host '{host}': .+; {remedy}$"):
        check_free(host, 0)
