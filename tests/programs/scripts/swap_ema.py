"""An optimizer with EMA, weight decay and a cosine schedule; SwapEMAWeights for the validation and the end."""

import keras
import numpy as np
from keras import layers

BATCH = 8
keras.utils.set_random_seed(47)

rng = np.random.default_rng(0)
x, y = rng.normal(size=(28, 6)).astype("float32"), rng.integers(0, 3, 28)
model = keras.Sequential(
    [
        keras.Input((6,)),
        layers.Dense(8, use_bias=False),
        layers.BatchNormalization(),
        layers.Activation("relu"),
        layers.Dense(3, activation="softmax"),
    ]
)
schedule = keras.optimizers.schedules.CosineDecay(1e-2, decay_steps=9, warmup_target=2e-2, warmup_steps=3)
optimizer = keras.optimizers.AdamW(schedule, weight_decay=0.01, use_ema=True, ema_momentum=0.9, global_clipnorm=1.0)
optimizer.exclude_from_weight_decay(var_names=["bias", "gamma", "beta"])
model.compile(optimizer, "sparse_categorical_crossentropy", metrics=["accuracy"])
history = model.fit(
    x[:20],
    y[:20],
    batch_size=BATCH,
    epochs=3,
    shuffle=False,
    validation_data=(x[20:], y[20:]),
    callbacks=[keras.callbacks.SwapEMAWeights(swap_on_epoch=True)],
)
predictions = model.predict(x)
