"""What does the check of the first step cost? `python -m benchmarks.check`, or `make bench-check`."""
