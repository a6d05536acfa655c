"""Loaded models that continue texts: from checked prompts and chats to results; or that translate if they are asked to."""
