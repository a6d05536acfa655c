"""Start of translation servers, CPUs for them, and load for them. Imported by the scripts of tests/benchmarks."""
