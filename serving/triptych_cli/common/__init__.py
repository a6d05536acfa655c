"""Code that several groups of commands share: options, connections, input lines, output and errors.

Imported by all other packages of triptych_cli; imports none of them.
"""
