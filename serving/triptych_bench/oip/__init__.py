"""Servers of the Open Inference Protocol, version 2, as targets: Triton, KServe's runtimes, and Triptych.

For `triptych_cli` and scripts. The messages have their own descriptor pool (`triptych.inference`), so that other clients of the
protocol can be imported as well.
"""

from triptych_bench.oip.target import OipTarget

__all__ = ["OipTarget"]
