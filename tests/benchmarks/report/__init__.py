"""Tables, JSON files, machine descriptions, translation quality and minimum work.

Imported by the scripts of tests/benchmarks.
"""
