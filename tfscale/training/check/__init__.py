"""Is a step on N replicas that of one replica? Imports TensorFlow."""
