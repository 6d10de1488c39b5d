"""Which examples does a worker read, in which order, and what becomes of them before the step?"""
