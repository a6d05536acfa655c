"""Documents: what of them is text, how it is cut, protected and checked, and how translations come back into their places.

Pure: no network and no models. `format` finds the reader of a document; its `units` go through `work.Work`, which says what a
translator must be asked and turns the answers into pieces; `Document.render` puts them back.
"""
