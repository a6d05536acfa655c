"""Quick settings of PyTorch."""

from ..fixtures import quick_torch  # noqa: F401
