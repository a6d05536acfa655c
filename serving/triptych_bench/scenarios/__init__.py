"""The ways to put load on a server that benchmarks agree on."""
