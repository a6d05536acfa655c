"""Office Open XML text documents (.docx)."""
