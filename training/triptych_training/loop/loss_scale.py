"""Loss scaling for float16, whose small gradients would otherwise become zero (Micikevicius et al. 2018, section 3.2)."""

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

GROWTH_STEPS = 2_000  # good steps after which the factor doubles
LARGEST = 2.0**24


class LossScale:
    """A factor that grows while gradients stay finite and is halved when they do not."""

    def __init__(self, factor: float = 2.0**16) -> None:
        self.factor = factor
        self._good = 0

    def unscale(self, parameters: Iterable[Tensor]) -> bool:
        """Take the factor out of the gradients; False where they overflowed: the step must be left out."""
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        norms = torch.stack([norm.float() for norm in torch._foreach_norm(gradients)])
        if not bool(norms.isfinite().all()):
            self.factor, self._good = max(1.0, self.factor / 2), 0
            return False
        torch._foreach_mul_(gradients, 1 / self.factor)
        self._good += 1
        if self._good == GROWTH_STEPS:
            self.factor, self._good = min(LARGEST, self.factor * 2), 0
        return True

    def state(self) -> dict[str, float]:
        """What `restore` takes."""
        return {"factor": self.factor, "good": self._good}

    def restore(self, state: Mapping[str, float]) -> None:
        """Go on where another one stood."""
        self.factor, self._good = float(state["factor"]), int(state["good"])
