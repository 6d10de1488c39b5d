"""What is one call of `fit`, `evaluate` or `predict`? Imports TensorFlow."""
