"""The embedded models: a model repository as package data."""

from pathlib import Path

REPOSITORY = Path(__file__).parent / "repository"
