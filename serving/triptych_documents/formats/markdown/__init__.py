"""CommonMark with GitHub's extensions."""
