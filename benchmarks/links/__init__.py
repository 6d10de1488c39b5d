"""How fast are two workers over a link that is slow, and what does each way to send gradients save?

`python -m benchmarks.links`: two workers in two networks of their own, joined by a link whose rate is limited.
"""
