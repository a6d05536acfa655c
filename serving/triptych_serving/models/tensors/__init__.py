"""Models of plain tensors. Imports `encoding`; imported by `repository` and `services`."""
