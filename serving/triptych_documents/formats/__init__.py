"""One module or package per document format, and helpers that several formats share.

`triptych_documents.format` imports them on demand; code outside of this package uses that.
"""
