"""Triptych's wire contract: protocol buffers and the stubs that are generated from them.

`triptych.v1` has the messages and services; `triptych_client` is the library that most programs want instead.
"""
