"""What does `dp.dataset` cost beside a pipeline written by hand, and how does its work fall with the workers?

`python -m benchmarks.input_data`, or `make bench-data`.
"""
