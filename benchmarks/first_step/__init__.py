"""How does the first step grow with the number of replicas? `python -m benchmarks.first_step`."""
