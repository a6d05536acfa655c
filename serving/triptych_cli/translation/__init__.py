"""The commands `translate` and `score`, and the two backends that translate: an engine in this process or a server.

Imported by main and by the commands of triptych_cli.training.
"""
