"""Scales of axes: from values to positions, and the values of the ticks."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

STEPS = (1, 2, 2.5, 5, 10)
ROUNDING = 1e-12  # of a power of ten
LOGARITHMIC = 40.0  # a range of this factor gets a logarithmic axis


@dataclass(frozen=True)
class LinearScale:
    """Equal differences are equal distances."""

    low: float
    high: float
    ticks: Sequence[float]

    def __call__(self, value: float) -> float:
        return (value - self.low) / (self.high - self.low)


@dataclass(frozen=True)
class LogScale:
    """Equal factors are equal distances; values are above 0."""

    low: float
    high: float
    ticks: Sequence[float]

    def __call__(self, value: float) -> float:
        return math.log(max(value, self.low) / self.low) / math.log(self.high / self.low)


@dataclass(frozen=True)
class TailScale:
    """Fractions, with the same distance for each further nine, as in HdrHistogram's percentile plots."""

    nines: float  # at the end of the axis; 3 is 0.999

    @property
    def ticks(self) -> Sequence[float]:
        """0, 0.5, 0.9, 0.99, ..."""
        return [0.0, 0.5, *(1 - 10.0**-nine for nine in range(1, math.floor(self.nines + 1e-9) + 1))]

    def __call__(self, value: float) -> float:
        return min(1.0, -math.log10(max(1 - value, 1e-12)) / self.nines)


# A scale converts a value to a position: 0 at the start of the axis, 1 at its end.
Scale = LinearScale | LogScale | TailScale


def from_zero(values: Sequence[float], most: int = 6) -> LinearScale:
    """Scale from 0 to the tick above the largest value, so that lengths are proportional to the values."""
    high = max(values, default=0.0) or 1.0
    step = _step(high, most)
    count = math.ceil(high / step - 1e-9)
    return LinearScale(0.0, count * step, [index * step for index in range(count + 1)])


def ending(high: float, most: int = 10) -> LinearScale:
    """Scale from 0 to exactly `high`, with ticks at round values."""
    step = _step(high, most)
    return LinearScale(0.0, high, [index * step for index in range(math.floor(high / step + 1e-9) + 1)])


def decades(values: Sequence[float]) -> LogScale:
    """Scale between 1, 2 or 5 times powers of ten around the values."""
    low, high = _below(min(values)), _above(max(values))
    if high <= low:
        low, high = low / 2, high * 2
    powers = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 1)
    every = [digit * 10.0**power for power in powers for digit in (1, 2, 5)]
    ticks = [tick for tick in every if low * 0.999 <= tick <= high * 1.001]
    return LogScale(low, high, ticks if len(ticks) <= 10 else [tick for tick in ticks if f"{tick:e}"[0] == "1"])


def fitting(values: Sequence[float]) -> LinearScale | LogScale:
    """Scale from zero, or logarithmically if the small values would be indistinguishable."""
    positive = [value for value in values if value > 0]
    return decades(positive) if positive and max(values) / min(positive) > LOGARITHMIC else from_zero(values)


def _step(high: float, most: int) -> float:
    rough = high / most
    power = 10.0 ** math.floor(math.log10(rough))
    return next(step * power for step in STEPS if step * power >= rough * 0.999)


def _below(value: float) -> float:
    """Round down to 1, 2 or 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(value))
    return max(digit * power for digit in (1, 2, 5) if digit * power <= value * (1 + ROUNDING))


def _above(value: float) -> float:
    """Round up to 1, 2 or 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(value))
    return min(digit * power for digit in (1, 2, 5, 10) if digit * power >= value * (1 - ROUNDING))
