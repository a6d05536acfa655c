"""From the log of a run to its figures: distributions, steady state, and the `Run` of a report.

For `triptych_bench.scenarios`, `triptych_bench.server` and scripts.
"""
