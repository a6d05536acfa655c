"""The command `bench`: its flags, the run with its report, and the comparison of reports.

Imported by main alone.
"""
