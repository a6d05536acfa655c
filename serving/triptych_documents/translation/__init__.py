"""Translates one segment: masks protected spans, checks results and puts tags back.

Written as generators that yield requests and receive results; used by `driver` alone.
"""
