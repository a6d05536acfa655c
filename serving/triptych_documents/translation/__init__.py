"""Translates units: masks protected spans of their segments, checks results and puts tags back.

Written as generators that yield requests and receive results. Users make a `units.UnitTranslator` for the `driver`.
"""
