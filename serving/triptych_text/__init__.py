"""Language codes and sentence splitting.

Imports no other package of the product and neither network nor model libraries; any package may import it.
"""
