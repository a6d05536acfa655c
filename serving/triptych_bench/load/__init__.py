"""Putting load on a server: when requests are sent, and what became of each."""
