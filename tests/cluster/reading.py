"""A pass over data, as threads of TensorFlow would note it."""


def read_pass(passes, data, batches, *, ends=True):
    """Notes one more pass, and returns its number."""
    number = passes.begin(data)
    for _ in range(batches):
        passes.note(data, number)
    if ends:
        passes.end(data, number)
    return number
