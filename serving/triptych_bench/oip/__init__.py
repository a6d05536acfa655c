"""Any server of the Open Inference Protocol, version 2, as a target: Triton, KServe's runtimes, and Triptych itself.

Its messages live in a descriptor pool of their own (`triptych.inference`), so that other clients of the protocol can be
imported beside it.
"""

from triptych_bench.oip.target import OipTarget

__all__ = ["OipTarget"]
