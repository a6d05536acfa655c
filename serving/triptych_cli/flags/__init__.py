"""Flags of `triptych serve`, a module for each part of the server: `flags` adds them to a command, `read` makes its options."""
