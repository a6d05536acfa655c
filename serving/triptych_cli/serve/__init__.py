"""The command `serve`: a module of flags for each part of the server.

Imported by main alone.
"""
