"""What a graph takes and gives at each bucket, as layouts of memory."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial

from triptych_serving.encoding.cuda.buckets import Bucket
from triptych_serving.runtime.arrays import Array, ArrayLayout, ArraySpec
from triptych_serving.runtime.session import Session


@dataclass(frozen=True)
class Shapes:
    """Those of one bucket."""

    inputs: ArrayLayout
    outputs: ArrayLayout
    results: ArrayLayout  # outputs that are brought to page-locked memory; the others are seldom asked for
    scalars: Mapping[str, Array]  # inputs that the runtime reads on the host; a captured run keeps what they were


MakeShapes = Callable[[Bucket], Shapes]
REMEMBERED = 512  # buckets


class Declared:
    """What a session says of its inputs and outputs; the session itself is not kept."""

    def __init__(self, session: Session) -> None:
        self.inputs, self.outputs = session.inputs, session.outputs
        self._parts = {name: (session.shape(name), session.dtype(name)) for name in (*self.inputs, *self.outputs)}

    def part(self, name: str, *sizes: int) -> ArraySpec:
        """An input or output whose free dimensions have these sizes, in their order; there may be more sizes than those."""
        shape, dtype = self._parts[name]
        free = iter(sizes)
        return ArraySpec(tuple(size if isinstance(size, int) else next(free) for size in shape), dtype)


def remembered(make: Callable[[Declared, Bucket], Shapes], declared: Declared) -> MakeShapes:
    """Of a graph's buckets, each made once."""
    return lru_cache(REMEMBERED)(partial(make, declared))
