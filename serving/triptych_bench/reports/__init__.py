"""What a benchmark has found, as files and on the screen: JSON, CSV, a plain table, and one HTML page."""
