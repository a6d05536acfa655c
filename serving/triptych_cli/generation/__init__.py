"""The command that continues texts."""
