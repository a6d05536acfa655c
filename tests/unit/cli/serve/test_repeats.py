"""`triptych serve`: requests that come more than once."""

import pytest

from triptych_serving.response_cache.response_cache import ResponseCacheOptions
from triptych_serving.server import ServerOptions

from ..conftest import Run


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ([], ResponseCacheOptions(0, False)),
        (["--response-cache-bytes", "1000", "--deduplicate"], ResponseCacheOptions(1_000, True)),
        (["--deduplicate", "--no-deduplicate"], ResponseCacheOptions(0, False)),
    ],
    ids=str,
)
def test_what_the_flags_become(run: Run, served: list[ServerOptions], flags: list[str], expected: ResponseCacheOptions) -> None:
    assert run("serve", *flags).code == 0
    assert served[0].repeats == expected


def test_the_environment_may_say_so_too(run: Run, served: list[ServerOptions], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIPTYCH_RESPONSE_CACHE_BYTES", "5000")
    monkeypatch.setenv("TRIPTYCH_DEDUPLICATE", "true")
    assert run("serve").code == 0
    assert served[0].repeats == ResponseCacheOptions(5_000, True)


def test_a_cache_is_no_smaller_than_nothing(run: Run, served: list[ServerOptions]) -> None:
    result = run("serve", "--response-cache-bytes", "-1")
    assert result.code == 2
    assert "--response-cache-bytes" in result.error
    assert not served
