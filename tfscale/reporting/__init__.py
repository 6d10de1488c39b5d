"""What was a run like? One page, made of the files that it has left. No TensorFlow."""
