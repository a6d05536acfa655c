"""One module per architecture: its config, and the mapping of its weights to our modules.

Imported by `loading` through the registry.
"""
