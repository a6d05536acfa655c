"""HTML documents; Markdown uses it for embedded HTML."""
