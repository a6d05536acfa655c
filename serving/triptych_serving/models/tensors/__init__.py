"""Models of plain tensors."""
