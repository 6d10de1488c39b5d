"""Does a run on N replicas make as much progress per example as the run on one that its recipe was tuned for?

`python -m benchmarks.equal_progress`, or `make bench-scaling`, trains digits with the per-replica batch fixed on 1, 2,
4 and 8 replicas, re-derived and not, and prints and draws how far each comes.
"""

EPOCHS = 40
