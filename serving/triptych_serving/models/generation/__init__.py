"""Loaded models that continue texts: from checked prompts and chats to results."""
