"""Options of shutdown and of the age of connections."""

from dataclasses import dataclass


@dataclass(frozen=True)
class LifecycleOptions:
    """Times of shutdown and connections, in seconds.

    Raises:
        ValueError: the drain delay leaves no time to finish requests.
    """

    drain_delay_seconds: float = 0.0  # after NOT_SERVING requests are still accepted: load balancers need a while to notice
    exit_timeout_seconds: float = 30.0  # from the signal to the exit, including the delay
    # Connections older than this, give or take 10 %, are closed once their calls are done, so that clients reach new replicas.
    max_connection_age_seconds: float = 600.0  # 0: never
    max_connection_age_grace_seconds: float = 0.0  # calls that exceed the age by more are cancelled; 0: never

    def __post_init__(self) -> None:
        if self.drain_delay_seconds and self.drain_delay_seconds >= self.exit_timeout_seconds:
            raise ValueError(
                f"the drain delay ({self.drain_delay_seconds:g} s) must be below the exit timeout "
                f"({self.exit_timeout_seconds:g} s)"
            )

    @property
    def channel_options(self) -> list[tuple[str, int]]:
        """Options of gRPC's core."""
        given = {
            "grpc.max_connection_age_ms": self.max_connection_age_seconds,
            "grpc.max_connection_age_grace_ms": self.max_connection_age_grace_seconds,
        }
        return [(name, round(1000 * seconds)) for name, seconds in given.items() if seconds]
