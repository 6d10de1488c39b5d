"""raydp#447: every worker writes the checkpoint, since saving on the chief alone may wait for ever."""

import json
import os
import tempfile

import keras
import numpy as np
from keras import layers

BATCH = 8
WORKERS = True
REPORTED = "raydp#447"
keras.utils.set_random_seed(447)

is_chief = json.loads(os.environ.get("TF_CONFIG", "{}")).get("task", {}).get("index", 0) == 0
rng = np.random.default_rng(0)
x, y = rng.normal(size=(29, 4)).astype("float32"), rng.normal(size=(29, 1)).astype("float32")
model = keras.Sequential(
    [
        keras.Input((4,)),
        layers.Dense(6, use_bias=False),
        layers.BatchNormalization(momentum=0.5),
        layers.ReLU(),
        layers.Dense(1),
    ]
)
model.compile(optimizer=keras.optimizers.SGD(0.02), loss="mse", metrics=["mae"])
history = model.fit(x[:21], y[:21], batch_size=BATCH, epochs=2, shuffle=False)
results = model.evaluate(x[21:], y[21:], batch_size=BATCH)
predictions = model.predict(x)
if is_chief:
    checkpoint = os.path.join(tempfile.mkdtemp(), "model.keras")
    model.save(checkpoint)
    restored = keras.models.load_model(checkpoint)
    np.testing.assert_allclose(restored.predict(x), predictions, rtol=1e-4, atol=1e-5)
    del restored
more_history = model.fit(x[:21], y[:21], batch_size=BATCH, epochs=1, shuffle=False)
