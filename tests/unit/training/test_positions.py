"""Position tables."""

import math

import pytest
import torch

from triptych_training.positions import make_positions, sinusoid_table


def test_sinusoids_are_those_of_the_paper() -> None:
    table = sinusoid_table(50, 6)
    for position in (0, 1, 49):
        for pair in range(3):
            angle = position / 10_000 ** (2 * pair / 6)
            assert table[position, 2 * pair].item() == pytest.approx(math.sin(angle), abs=1e-6)
            assert table[position, 2 * pair + 1].item() == pytest.approx(math.cos(angle), abs=1e-6)


def test_an_odd_width_ends_with_a_sine() -> None:
    position = torch.arange(9)
    assert torch.allclose(sinusoid_table(9, 5)[:, 4], torch.sin(position / 10_000 ** (4 / 5)))


def test_sinusoids_are_not_stored_and_learned_positions_are_trained() -> None:
    assert not make_positions("sinusoidal", 8, 4).state_dict()
    assert not list(make_positions("sinusoidal", 8, 4).parameters())
    assert [p.shape for p in make_positions("learned", 8, 4).parameters()] == [(8, 4)]


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="positions: 'rotary' is unknown; choose one of sinusoidal, learned"):
        make_positions("rotary", 8, 4)
