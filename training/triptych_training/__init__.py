"""PyTorch models and training loops. A training writes a checkpoint folder; everything after it reads that folder alone."""
