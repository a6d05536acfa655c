"""Models in this process, without a server: requests, registries and the translation of sentences for document jobs.

Imported by triptych_cli and triptych_ray; imports neither.
"""
