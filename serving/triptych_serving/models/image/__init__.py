"""Image classifiers, and autoencoders, which generate images."""
