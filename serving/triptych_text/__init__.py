"""Language codes, sentence splitting, entities in labels, scores of translations, long work in steps, errors about encodings.

Imports no other package of the product and neither network nor model libraries; any package may import it.
"""
