"""Files of a Hugging Face checkpoint: config.json, weights, generation, pooling and image settings.

Imported by `huggingface.architectures`.
"""
