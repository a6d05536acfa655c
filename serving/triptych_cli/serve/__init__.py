"""The command `serve`, and its flags for each part of the server.

Imported by main alone.
"""
