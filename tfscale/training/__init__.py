"""One exact step: the strategy, the model, the reduction, batch norm, randomness and data. Imports TensorFlow."""
