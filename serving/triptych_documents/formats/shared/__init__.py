"""Text spans, inline codes, wrapping, size limits and XML parsing for several formats.

Any format may import it.
"""
