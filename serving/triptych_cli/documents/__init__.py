"""The commands `translate-docs` and `memory`: discovery of files, the job, its database, progress and report.

Imported by main alone.
"""
