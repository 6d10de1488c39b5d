"""What do logical replicas cost, and `deterministic` on top? `python -m benchmarks.logical`."""
