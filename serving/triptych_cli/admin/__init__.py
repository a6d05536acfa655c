"""The commands that manage a repository or a running server: `models`, `load`, `unload`, `health` and `keys`.

Imported by main alone.
"""
