"""From what became of each request to numbers."""
