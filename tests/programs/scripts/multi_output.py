"""Several inputs and outputs by name: losses in a dict, loss weights, metrics of each, sample weights of each."""

import keras
import numpy as np
from keras import layers

BATCH = 12
keras.utils.set_random_seed(24)

title_input = keras.Input((None,), dtype="int32", name="title")
tags_input = keras.Input((5,), name="tags")
title_features = layers.LSTM(6)(layers.Embedding(30, 4, mask_zero=True)(title_input))
x = layers.concatenate([title_features, tags_input])
priority_pred = layers.Dense(1, name="priority")(x)
department_pred = layers.Dense(4, name="department")(x)
model = keras.Model([title_input, tags_input], {"priority": priority_pred, "department": department_pred})
model.compile(
    optimizer=keras.optimizers.RMSprop(1e-3),
    loss={
        "priority": keras.losses.BinaryCrossentropy(from_logits=True),
        "department": keras.losses.CategoricalCrossentropy(from_logits=True),
    },
    loss_weights={"priority": 1.0, "department": 0.2},
    metrics={"priority": ["mae"], "department": ["accuracy", keras.metrics.CategoricalCrossentropy(from_logits=True)]},
)
rng = np.random.default_rng(0)
title_data = rng.integers(1, 30, (44, 7)) * (np.arange(7) < rng.integers(1, 8, (44, 1)))
tags_data = rng.integers(0, 2, (44, 5)).astype("float32")
priority_targets = rng.uniform(size=(44, 1)).astype("float32")
dept_targets = np.eye(4, dtype="float32")[rng.integers(0, 4, 44)]
history = model.fit(
    {"title": title_data, "tags": tags_data},
    {"priority": priority_targets, "department": dept_targets},
    sample_weight={"priority": rng.uniform(size=44).astype("float32"), "department": np.ones(44, "float32")},
    epochs=2,
    batch_size=BATCH,
    shuffle=False,
)
predictions = model.predict({"title": title_data, "tags": tags_data})
