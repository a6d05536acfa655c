"""Translation and encoder implementations that take turns in a benchmark, and the contest between them.

Imported by the scripts of tests/benchmarks, whose folder is on sys.path.
"""
