"""Triptych's own services as targets."""
