"""The light base package, which every other package may import: wire contract, decoding options, signals and version.

`triptych.v1` has the messages and services; `triptych_client` is the library that most programs want instead.
"""
