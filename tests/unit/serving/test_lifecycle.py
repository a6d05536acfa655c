"""Options for the end of a server."""

import pytest

from triptych_serving.lifecycle import LifecycleOptions


@pytest.mark.parametrize(("delay", "timeout"), [(30.0, 30.0), (31.0, 30.0)])
def test_the_delay_leaves_time_to_drain(delay: float, timeout: float) -> None:
    with pytest.raises(ValueError, match="must be below the exit timeout"):
        LifecycleOptions(drain_delay_seconds=delay, exit_timeout_seconds=timeout)


def test_no_delay_goes_with_no_time() -> None:
    assert LifecycleOptions(exit_timeout_seconds=0.0).drain_delay_seconds == 0.0


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (LifecycleOptions(), {"grpc.max_connection_age_ms": 600_000}),
        (LifecycleOptions(max_connection_age_seconds=0.0), {}),
        (
            LifecycleOptions(max_connection_age_seconds=0.5, max_connection_age_grace_seconds=2.0),
            {"grpc.max_connection_age_ms": 500, "grpc.max_connection_age_grace_ms": 2_000},
        ),
    ],
)
def test_connections_age(options: LifecycleOptions, expected: dict[str, int]) -> None:
    assert dict(options.channel_options) == expected
