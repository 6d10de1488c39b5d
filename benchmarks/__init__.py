"""How fast is tfscale beside plain Keras and tf.distribute? `python -m benchmarks` measures it."""
