"""Start the workers, watch them, stop them together."""
