"""How a server comes to its end, and its connections to theirs."""

from dataclasses import dataclass

NEVER = 0.0


@dataclass(frozen=True)
class LifecycleOptions:
    """All in seconds.

    Raises:
        ValueError: nothing of the time to exit would be left to finish what runs.
    """

    drain_delay_seconds: float = 0.0  # health says NOT_SERVING, but requests are still taken: balancers need a while to notice
    exit_timeout_seconds: float = 30.0  # from the signal to the end, the delay included
    # Older connections are closed, give or take 10 %, once their calls are done, so that clients spread over new replicas.
    max_connection_age_seconds: float = 600.0  # 0: never
    max_connection_age_grace_seconds: float = NEVER  # calls that take longer than this beyond the age are cut; 0: none is

    def __post_init__(self) -> None:
        if self.drain_delay_seconds and self.drain_delay_seconds >= self.exit_timeout_seconds:
            raise ValueError(f"the drain delay ({self.drain_delay_seconds:g} s) must be below the exit timeout")

    @property
    def channel_options(self) -> list[tuple[str, int]]:
        """gRPC's own settings."""
        given = {
            "grpc.max_connection_age_ms": self.max_connection_age_seconds,
            "grpc.max_connection_age_grace_ms": self.max_connection_age_grace_seconds,
        }
        return [(name, round(1000 * seconds)) for name, seconds in given.items() if seconds]
