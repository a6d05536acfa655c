"""What is sent, and what should come back."""
