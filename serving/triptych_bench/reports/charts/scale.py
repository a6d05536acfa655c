"""From values to pixels, and where ticks stand."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

STEPS = (1, 2, 2.5, 5, 10)
ROUNDING = 1e-12  # of a power of ten
MANY = 40.0  # a range of this factor is drawn on a logarithmic axis


class Scale(Protocol):
    """One axis."""

    @property
    def ticks(self) -> Sequence[float]:
        """Values where a line is."""
        ...

    def __call__(self, value: float) -> float:
        """0 at the axis' beginning, 1 at its end."""
        ...


@dataclass(frozen=True)
class Linear:
    """From `low` to `high`, which are ticks or what `ending` made of them."""

    low: float
    high: float
    ticks: Sequence[float]

    def __call__(self, value: float) -> float:
        return (value - self.low) / (self.high - self.low)


@dataclass(frozen=True)
class Log:
    """Equal factors are equal distances. Values are above 0."""

    low: float
    high: float
    ticks: Sequence[float]

    def __call__(self, value: float) -> float:
        return math.log(max(value, self.low) / self.low) / math.log(self.high / self.low)


@dataclass(frozen=True)
class Tail:
    """Of fractions: each nine takes as much room as the one before, as HdrHistogram draws percentiles."""

    nines: float  # at the axis' end; 3 is 0.999

    @property
    def ticks(self) -> Sequence[float]:
        """0, 0.5, 0.9, 0.99, ..."""
        return [0.0, 0.5, *(1 - 10.0**-nine for nine in range(1, math.floor(self.nines + 1e-9) + 1))]

    def __call__(self, value: float) -> float:
        return min(1.0, -math.log10(max(1 - value, 1e-12)) / self.nines)


def from_zero(values: Sequence[float], most: int = 6) -> Linear:
    """0 to the tick above the largest value, so that lengths compare as the values do."""
    high = max(values, default=0.0) or 1.0
    step = _step(high, most)
    count = math.ceil(high / step - 1e-9)
    return Linear(0.0, count * step, [index * step for index in range(count + 1)])


def ending(high: float, most: int = 10) -> Linear:
    """0 to `high` itself, with ticks at round values."""
    step = _step(high, most)
    return Linear(0.0, high, [index * step for index in range(math.floor(high / step + 1e-9) + 1)])


def decades(values: Sequence[float]) -> Log:
    """From the 1, 2 or 5 below the smallest value to that above the largest one."""
    low, high = _below(min(values)), _above(max(values))
    if high <= low:
        low, high = low / 2, high * 2
    powers = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 1)
    every = [digit * 10.0**power for power in powers for digit in (1, 2, 5)]
    ticks = [tick for tick in every if low * 0.999 <= tick <= high * 1.001]
    return Log(low, high, ticks if len(ticks) <= 10 else [tick for tick in ticks if f"{tick:e}"[0] == "1"])


def fitting(values: Sequence[float]) -> Linear | Log:
    """From zero, unless that would squeeze the small values into a line."""
    small = min((value for value in values if value > 0), default=0.0)
    return decades([value for value in values if value > 0]) if small and max(values) / small > MANY else from_zero(values)


def _step(high: float, most: int) -> float:
    rough = high / most
    power = 10.0 ** math.floor(math.log10(rough))
    return next(step * power for step in STEPS if step * power >= rough * 0.999)


def _below(value: float) -> float:
    """The largest of 1, 2 and 5 times a power of ten that is no larger."""
    power = 10.0 ** math.floor(math.log10(value))
    return max(digit * power for digit in (1, 2, 5) if digit * power <= value * (1 + ROUNDING))


def _above(value: float) -> float:
    """The smallest that is no smaller."""
    power = 10.0 ** math.floor(math.log10(value))
    return min(digit * power for digit in (1, 2, 5, 10) if digit * power >= value * (1 - ROUNDING))
