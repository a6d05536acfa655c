"""Zipped XML documents: what the formats of word processors, presentations, spreadsheets and electronic books have in common.

Used by `formats.docx`, `formats.pptx`, `formats.xlsx`, `formats.opendocument` and `formats.epub` alone.
"""
