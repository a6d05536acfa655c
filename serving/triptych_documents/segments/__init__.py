"""Turns a unit into sentences with their inline tags and the spans that must survive translation.

Used by `translation` alone.
"""
