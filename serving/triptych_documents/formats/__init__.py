"""One module for each kind of document; each has its reader as FORMAT."""
