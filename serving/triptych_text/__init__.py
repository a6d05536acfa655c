"""Language codes, sentence splitting and errors about encodings.

Imports no other package of the product and neither network nor model libraries; any package may import it.
"""
