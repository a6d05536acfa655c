"""Models of the BERT family and their tasks."""
