"""OpenDocument texts (.odt)."""
