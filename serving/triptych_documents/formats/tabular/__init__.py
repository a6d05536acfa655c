"""CSV and TSV tables."""
