"""How do gradients come about, travel and enter the update? Imports TensorFlow."""
