"""The version of the distribution: the build, the server and the clients read it here."""

__version__ = "0.1.0"
