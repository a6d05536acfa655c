"""Inputs of a benchmark with their references, from files and from the package. For `triptych_cli` and scripts."""
