"""Exact resume: what a run's state is, when and where it is written, and how another job goes on with it."""
