"""The base that every other package may import: the wire contract (protocol buffers and their generated stubs) and the version.

`triptych.v1` has the messages and services; `triptych_client` is the library that most programs want instead.
"""
