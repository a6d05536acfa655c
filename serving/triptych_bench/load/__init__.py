"""The load generator: when requests are sent, and the log of what became of each.

For `triptych_bench.measure`, `triptych_bench.scenarios` and scripts.
"""
