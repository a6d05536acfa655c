"""Reports and comparisons as files and on the screen: JSON, CSV, plain text, and one HTML page.

For `triptych_cli` and scripts.
"""
