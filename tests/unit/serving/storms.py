"""Random sequences of rows that join, leave and step in a lane."""

from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import strategies as st

from triptych_serving.decoding.lane import Lane
from triptych_serving.scheduling.request import Row

Event = tuple[str, Any]


def events(rows: st.SearchStrategy[Any], most: int) -> st.SearchStrategy[list[Event]]:
    """Draw up to `most` events; `rows` draws the arguments of a row."""
    joins = st.tuples(st.just("join"), rows)
    leaves = st.tuples(st.just("leave"), st.integers(0, 9))
    steps = st.tuples(st.just("step"), st.integers(1, 8))
    return st.lists(joins | leaves | steps, max_size=most)


def play(
    lane: Lane, events: Sequence[Event], make_row: Callable[..., Row], check: Callable[[], None] = lambda: None
) -> list[Row]:
    """Apply events to a lane, then step it to the end; return the rows that ended. `check` runs after each event."""
    lane.reset()  # after an example that failed
    ended: list[Row] = []
    for event, value in events:
        if event == "join":
            row = make_row(*value)
            if row.search.slots <= lane.free:
                lane.join([row])
        elif event == "leave" and lane.rows:
            lane.leave([lane.rows[value % len(lane.rows)]])
        elif event == "step":
            for _ in range(value):
                ended += lane.step() if lane.rows else []
        check()
    while lane.rows:
        ended += lane.step()
        check()
    return ended
