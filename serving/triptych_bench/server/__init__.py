"""The server under test: starting its process, and watching its resources and counters.

For `triptych_bench.scenarios`, `triptych_bench.session` and scripts.
"""
