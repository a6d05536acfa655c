"""The scenarios of MLPerf Inference and perf_analyzer: which loads are measured, and their headline figures.

For `triptych_bench.session`.
"""
