"""What does one replica do in one step, and with which state? Imports TensorFlow."""
