"""`triptych translate-docs`: which documents, who translates them, what is remembered, and what becomes of it."""
