import pytest

from triptych_client import NotFoundError

from .conftest import Ask
from .fake_server import FakeServer


@pytest.mark.parametrize("ready", [True, False])
def test_ready_is_what_the_server_says(server: FakeServer, ask: Ask, ready: bool) -> None:
    server.set_ready(ready)
    assert ask(server.address, lambda client: client.is_ready()) is ready


def test_unknown_service_is_an_error(server: FakeServer, ask: Ask) -> None:
    with pytest.raises(NotFoundError):
        ask(server.address, lambda client: client.is_ready("no.such.Service"))


def test_no_server_is_not_ready(ask: Ask) -> None:
    with FakeServer() as server:
        address = server.address
    assert ask(address, lambda client: client.is_ready()) is False
