"""Which lines does a plain Keras script need, and where do they stand? By its syntax alone: nothing of it is run."""
