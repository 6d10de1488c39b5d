"""What of a model needs the whole batch, and how does each replica get its part of it? Imports TensorFlow."""
