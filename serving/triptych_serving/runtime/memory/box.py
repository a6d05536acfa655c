"""What of a cache is copied."""

from dataclasses import dataclass

from triptych_serving.runtime.memory.array import DeviceArray

RANK = 5


@dataclass(frozen=True)
class Box:
    """`array[:, rows, :, positions, :]` of an array `[N, B, H, T, D]`.

    Args:
        array: of rank 5.
        rows: of B; without a step.
        positions: of T; without a step.

    Raises:
        ValueError: the array has another rank, or a range reaches over its end.
    """

    array: DeviceArray
    rows: slice
    positions: slice

    def __post_init__(self) -> None:
        if len(self.array.shape) != RANK:
            raise ValueError(f"the array's shape is {self.array.shape}, it must be [N, B, H, T, D]")
        _check_range("rows", self.rows, self.array.shape[1])
        _check_range("positions", self.positions, self.array.shape[3])

    @property
    def extent(self) -> tuple[int, int, int, int, int]:
        """Shape of what is copied."""
        n, _, h, _, d = self.array.shape
        return n, self.rows.stop - self.rows.start, h, self.positions.stop - self.positions.start, d


def check_copy(source: Box, target: Box) -> None:
    """Refuse what cannot be copied.

    Raises:
        ValueError: the two are of different extent or type, on two devices, or overlap.
    """
    if source.extent != target.extent:
        raise ValueError(f"extents differ: {source.extent} is copied to {target.extent}")
    if source.array.dtype != target.array.dtype:
        raise ValueError(f"types differ: {source.array.dtype} is copied to {target.array.dtype}")
    if source.array.device != target.array.device:
        raise ValueError(f"devices differ: {source.array.device} is copied to {target.array.device}")
    same = source.array.address == target.array.address
    if same and _meet(source.rows, target.rows) and _meet(source.positions, target.positions):
        raise ValueError(f"{source.rows}, {source.positions} overlap with {target.rows}, {target.positions} of the same array")


def _check_range(name: str, part: slice, length: int) -> None:
    start, stop, step = part.start, part.stop, part.step
    if step is not None or start is None or stop is None or not 0 <= start <= stop <= length:
        raise ValueError(f"{name} are {part}, they must be a range within 0 and {length}")


def _meet(one: slice, other: slice) -> bool:
    return bool(max(one.start, other.start) < min(one.stop, other.stop))
