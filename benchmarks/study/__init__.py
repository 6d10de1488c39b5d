"""Up to which batch do more replicas pay? The findings of Shallue et al. 2019 in shape, on what packages bring.

`python -m benchmarks.study` (`make bench-study`) runs nine studies, and one again with other examples:
digits, patches of photographs, Python's own sources; a perceptron, a convolutional net, a Transformer; SGD, momentum,
AdamW. Killed, it goes on where it was. Exit status 1 where a finding is missed, 2 where a study is not there yet.
"""
