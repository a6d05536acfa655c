"""The commands that continue texts and images."""
