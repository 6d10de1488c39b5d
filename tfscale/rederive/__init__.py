"""What becomes of a rate, a schedule or a callback when steps are fewer and larger? Imports TensorFlow."""
