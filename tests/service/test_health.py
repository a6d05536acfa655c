"""`triptych health`, which the image's health check and others without gRPC run."""

import pytest

from .support.processes import ServerProcess, done, error_of, run

SERVICES = ["", "triptych.v1.TranslationService"]


@pytest.mark.parametrize("service", SERVICES)
def test_a_server_serves(server: ServerProcess, service: str) -> None:
    assert done(run("health", "--server", server.address, "--service", service)) == "serving\n"


def test_a_service_without_a_model_does_not(server: ServerProcess) -> None:
    result = run("health", "--server", server.address, "--service", "triptych.v1.FillMaskService")
    assert (result.returncode, result.stdout, result.stderr) == (1, "not serving\n", "")


def test_a_service_that_is_not_there_is_one_line(server: ServerProcess) -> None:
    assert error_of(run("health", "--server", server.address, "--service", "foo")).startswith(
        "NOT_FOUND: service 'foo' is unknown"
    )
