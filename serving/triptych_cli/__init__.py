"""The `triptych` command. `main` finds the module of a command; each group of commands has a folder.

Imported by nobody: `common` holds what the groups share, and each command imports heavy packages only when it runs.
"""
