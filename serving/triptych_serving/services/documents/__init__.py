"""Document translation: receive a document, translate its sentences in bounded batches, send it back.

Imported by `services.v1` and `wiring`; `alignment` also by the embedded backend of the command line.
"""
