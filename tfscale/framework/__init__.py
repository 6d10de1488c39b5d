"""Which unpromised names of Keras and TensorFlow do we stand on?

No other room touches an attribute of theirs that begins with an underscore, or imports `keras.src` or
`tensorflow.python`. Each function here says why the public API is not enough, and which test breaks first when the name
goes away; what is read or replaced goes through `hooks.py`, which raises where it is another one. Single objects are
adjusted, classes and modules never are. `canary.py` compares the code behind the names with that of tried releases.
"""
