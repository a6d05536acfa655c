"""Signals, and how often Python looks for cycles."""

import gc
import signal

import pytest

from triptych_cli.documents.collecting import rare_collections
from triptych_cli.documents.stopping import Stopping


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_is_noted(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with Stopping() as stopping:
        assert stopping.signal is None
        signal.raise_signal(number)
        assert stopping.signal == number
        assert stopping.exit_code == 128 + number
    assert signal.getsignal(number) == before


def test_the_second_signal_ends_the_process() -> None:
    ended = []
    before = signal.getsignal(signal.SIGINT)
    with Stopping() as stopping, pytest.MonkeyPatch.context() as patch:
        signal.raise_signal(signal.SIGINT)
        patch.setattr(signal, "raise_signal", ended.append)
        stopping._note(signal.SIGINT, None)
        assert signal.getsignal(signal.SIGINT) == signal.SIG_DFL
    assert ended == [signal.SIGINT]
    assert signal.getsignal(signal.SIGINT) == before


def test_collections_are_rare_for_a_while() -> None:
    before = gc.get_threshold()
    with rare_collections():
        assert gc.get_threshold()[0] > before[0]
        assert gc.get_freeze_count() > 0
    assert gc.get_threshold() == before
    assert gc.get_freeze_count() == 0
