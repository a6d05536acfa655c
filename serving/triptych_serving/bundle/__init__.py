"""Bundles on disk: manifest, graphs, labels, and what a manifest says of searches, images and languages.

Imports `runtime` and `errors`; every package above may import it.
"""
