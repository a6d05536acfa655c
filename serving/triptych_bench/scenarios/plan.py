"""How long, how often, how strictly."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Of every run. Seconds."""

    warm_up: float = 2.0  # under load, before anything counts
    window: float = 5.0  # three in a row must agree; open loops are measured for three
    most_windows: int = 10  # of a closed loop that does not settle
    tolerance: float = 0.10  # between windows
    least_answers: int = 20  # a window is longer until it has so many
    latency_limit: float | None = None  # of goodput, and of the server scenario's 99th percentile
    resolution: float = 0.03  # of the highest rate that is searched for
    least_arrivals: int = 300  # of an open loop: a 99th percentile of fewer is chance
    longest: float = 60.0  # of an open loop that waits for them
    most_probes: int = 14  # rates that a search tries
    offline_in_flight: int = 2_048  # inputs that are with the server at once
    offline_inputs: int = 0  # 0: as many as it answers in three windows
    seed: int = 1

    @property
    def span(self) -> float:
        """What counts of a run that has no windows."""
        return 3 * self.window
