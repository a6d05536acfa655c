"""Zipped XML documents: what DOCX and ODT have in common.

Used by `formats.docx` and `formats.odt` alone.
"""
