"""`triptych serve`: what its options become."""

import pytest

from triptych_serving.server import ServerOptions

from ..conftest import Run


def test_threads_of_encoders_are_left_to_the_models(run: Run, served: list[ServerOptions]) -> None:
    assert run("serve").code == 0
    assert (served[0].encoders.threads, served[0].encoders.runs) == (None, None)


def test_options_of_encoders(run: Run, served: list[ServerOptions]) -> None:
    assert run("serve", "--encoder-threads", "3", "--encoder-runs", "5", "--workers", "7").code == 0
    assert (served[0].encoders.threads, served[0].encoders.runs) == (3, 5)
    assert served[0].translator.engine.workers == 7


@pytest.mark.parametrize("option", ["--encoder-threads", "--encoder-runs"])
def test_no_encoder_without_a_thread(run: Run, served: list[ServerOptions], option: str) -> None:
    result = run("serve", option, "0")
    assert result.code == 2
    assert option in result.error
    assert not served


def test_limits_and_life_cycle(run: Run, served: list[ServerOptions]) -> None:
    options = ("--max-queue-rows", "7", "--max-requests-per-client", "3", "--drain-delay-secs", "2", "--exit-timeout-secs", "9")
    assert run("serve", *options).code == 0
    [settings] = served
    assert (settings.limits.queue_rows, settings.limits.requests_per_client) == (7, 3)
    assert settings.loader.translator.engine.limits.waiting_rows == settings.loader.encoders.limits.waiting_rows == 7
    assert (settings.lifecycle.drain_delay_seconds, settings.lifecycle.exit_timeout_seconds) == (2.0, 9.0)


def test_a_delay_as_long_as_the_exit_timeout_is_refused(run: Run, served: list[ServerOptions]) -> None:
    result = run("serve", "--drain-delay-secs", "5", "--exit-timeout-secs", "5")
    assert result.code == 2
    assert "--drain-delay-secs 5 must be below --exit-timeout-secs 5" in result.error
    assert not served
