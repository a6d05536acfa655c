"""The progress line."""

import io

from triptych_cli.common.progress import ProgressLine

from ....fixtures.clock import Clock


def test_the_line() -> None:
    clock = Clock()
    progress = ProgressLine(None, 12, 4_000_000, clock)
    assert progress.line(0, 0) == "  0%  0 of 12 documents  0 segments  0/s  ..."
    clock.now += 50
    progress.finish(0)
    assert progress.line(5_000, 1_000_000) == " 25%  1 of 12 documents  5,000 segments  100/s  2:30 left"
    clock.now += 9_950
    assert progress.line(20_000, 2_000_000).endswith("2/s  2:46:40 left")
    assert progress.line(20_000, 4_000_000).endswith("0:00 left")
    clock = Clock()
    progress = ProgressLine(None, 2, 1_000, clock)
    progress.finish(900)
    clock.now += 10
    assert progress.line(10, 50) == " 50%  1 of 2 documents  10 segments  1/s  0:10 left"
    progress.finish(100)
    assert progress.line(10, 0).startswith("100%  2 of 2 documents")


def test_the_line_is_updated_a_few_times_per_second() -> None:
    clock, stream = Clock(), io.StringIO()
    progress = ProgressLine(stream, 1, 1_000, clock)
    for _ in range(100):
        progress.show(1, 10)
        clock.now += 0.01
    progress.clear()
    shown = stream.getvalue().split("\r")[1:]
    assert 4 <= len(shown) <= 7
    assert "\n" not in stream.getvalue()
    assert shown[-1] == "\x1b[K"
