"""Checkpoint folders: what training writes and export reads, and their packed form.

May import `models` and `data`; the loop, evaluation, the tasks and `triptych_export` import it.
"""
