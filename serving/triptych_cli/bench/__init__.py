"""The command `bench`: its flags, the run, the files of the report and the comparison of reports.

Imported by main alone.
"""
