"""Which replicas are there, and how do they tell each other anything? Imports TensorFlow."""
