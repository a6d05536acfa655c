"""Devices, processes, precision and compilation, with Lightning Fabric and torch."""

import atexit
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import timedelta

import torch
from lightning_fabric import Fabric
from lightning_fabric.plugins import MixedPrecision, Precision
from lightning_fabric.strategies.ddp import DDPStrategy
from lightning_fabric.utilities.exceptions import MisconfigurationException
from torch import Tensor, nn

from triptych_training.errors import RecipeError
from triptych_training.loop.optimizer import LAYERS
from triptych_training.loop.recipe import Recipe

PATIENCE = timedelta(hours=12)  # longest wait of a process for another, such as for the first one that reads the data


def make_fabric(recipe: Recipe) -> Fabric:
    """Make, launch and seed a Fabric with one process per device; under `torchrun`, of the processes that it started.

    Raises:
        RecipeError: the devices cannot be used.
    """
    devices, machines = recipe.devices, 1
    if torch.distributed.is_available() and torch.distributed.is_torchelastic_launched():
        here, everywhere = int(os.environ["LOCAL_WORLD_SIZE"]), int(os.environ["WORLD_SIZE"])
        devices, machines = (str(here) if devices == "auto" else devices), everywhere // here
    precision = _precision(choose_precision(recipe.precision))
    try:
        fabric = Fabric(accelerator="auto", devices=devices, num_nodes=machines, plugins=precision)
    except (MisconfigurationException, TypeError, ValueError) as error:
        raise RecipeError(f"devices: {recipe.devices!r} cannot be used: {error}") from error
    if isinstance(fabric.strategy, DDPStrategy):
        fabric.strategy._timeout = PATIENCE  # Fabric, which chose the strategy, has no option for it
    fabric.launch()
    if torch.distributed.is_available() and torch.distributed.is_initialized() and torch.distributed.get_backend() == "gloo":
        # Else threads of gloo sometimes abort a process that ends. Of other backends, Fabric does it.
        atexit.register(torch.distributed.destroy_process_group)
    fabric.seed_everything(recipe.seed, verbose=False)
    return fabric


def choose_precision(name: str) -> str:
    """Resolve "auto": bf16 on GPUs and on CPUs that multiply bfloat16 numbers; others emulate that, slower than fp32."""
    if name != "auto":
        return name
    has_bfloat16 = torch.cuda.is_available() or torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
    return "bf16" if has_bfloat16 else "fp32"


def _precision(name: str) -> Precision | None:
    """Make the precision of a training step's arithmetic; None is float32, as the weights always are."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "fp32":
        return None
    if device == "cuda":
        torch.set_float32_matmul_precision("high")  # TensorFloat-32 for what is not in 16 bits
    if name == "bf16":
        return MixedPrecision("bf16-mixed", device)
    # The trainer scales the loss itself (LossScale): torch's scaler must own the steps of a single optimizer.
    return MixedPrecision("16-mixed", device, torch.amp.GradScaler(device, enabled=False))


CPU_ALLOCATOR = "DefaultCPUAllocator"  # in its errors, which have no type of their own
VARIANTS = 64  # compiled versions of a layer, for other shapes and drop-path probabilities


def compile_layers(model: nn.Module, backend: str = "inductor") -> int:
    """Compile every layer of `model` at its first call; returns the number of layers.

    Layers share one compiled version, which takes a fraction of the time of compiling the whole model, and weights keep their
    names.
    """
    torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, VARIANTS)
    layers = [module for module in model.modules() if isinstance(module, LAYERS)]
    for layer in layers:
        layer.compile(backend=backend)
    return len(layers)


@contextmanager
def machine_errors(recipe: Recipe) -> Iterator[None]:
    """Raise RecipeError inside the context if torch has too little memory, or cannot compile the layers."""
    try:
        yield
    except RuntimeError as error:
        reason = str(error).strip().partition("\n")[0].partition(" GPU ")[0]  # without a list of the GPU's other memory
        if isinstance(error, torch.OutOfMemoryError) or CPU_ALLOCATOR in reason:
            option = next(name for name in ("batch_words", "batch_tokens", "batch_images") if hasattr(recipe, name))
            raise RecipeError(
                f"{option}: a batch does not fit into memory ({reason}); lower it and raise accumulate, in a new training"
            ) from error
        if type(error).__module__.startswith(("torch._dynamo", "torch._inductor")):
            raise RecipeError(f"compile: the layers cannot be compiled on this machine ({reason}); leave it out") from error
        raise


def uncompiled(compiled: bool) -> AbstractContextManager[None]:
    """Run layers that were compiled without their compiled versions inside the context, for validations with other shapes."""
    return torch.compiler.set_stance("force_eager") if compiled else nullcontext()


GROWTH_STEPS = 2_000  # finite steps after which the factor doubles
LARGEST = 2.0**24


class LossScale:
    """Loss scaling for float16, whose small gradients would otherwise become zero (Micikevicius et al. 2018, section 3.2).

    The factor doubles after GROWTH_STEPS steps with finite gradients and is halved when gradients overflow.
    """

    def __init__(self, factor: float = 2.0**16) -> None:
        self.factor = factor
        self._good = 0

    def unscale(self, parameters: Iterable[Tensor]) -> bool:
        """Divide the gradients by the factor; False if they overflowed and the step must be skipped."""
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
        """Return the state for `restore`."""
        return {"factor": self.factor, "good": self._good}

    def restore(self, state: Mapping[str, float]) -> None:
        """Continue from a saved state."""
        self.factor, self._good = float(state["factor"]), int(state["good"])
