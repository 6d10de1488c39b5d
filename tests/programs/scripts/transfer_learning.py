"""Transfer learning: a trained base with batch normalization is frozen, a head is trained, then all is fine-tuned."""

import keras
from keras import layers
from sklearn.datasets import load_digits

BATCH = 12
WORKERS = True
keras.utils.set_random_seed(27)

digits = load_digits()
images, labels = (digits.images[:100, ..., None] / 16.0).astype("float32"), digits.target[:100]

base_inputs = keras.Input((8, 8, 1))
x = layers.Conv2D(6, 3, use_bias=False)(base_inputs)
x = layers.BatchNormalization(momentum=0.8)(x)
x = layers.Activation("relu")(x)
x = layers.Conv2D(8, 3, use_bias=False)(x)
x = layers.BatchNormalization(momentum=0.8)(x)
base_model = keras.Model(base_inputs, layers.GlobalAveragePooling2D()(x), name="base")
pretraining = keras.Sequential([base_model, layers.Dense(10, activation="softmax")])
pretraining.compile("adam", "sparse_categorical_crossentropy")
pretraining_history = pretraining.fit(images[:56], labels[:56], batch_size=BATCH, epochs=2, shuffle=False)

base_model.trainable = False
inputs = keras.Input((8, 8, 1))
scaled = layers.Rescaling(scale=2.0, offset=-1)(inputs)
x = base_model(scaled, training=False)
model = keras.Model(inputs, layers.Dense(1)(layers.Dropout(0.0)(x)))
even = (labels % 2 == 0).astype("float32")[:, None]
model.compile(
    optimizer=keras.optimizers.Adam(1e-2),
    loss=keras.losses.BinaryCrossentropy(from_logits=True),
    metrics=[keras.metrics.BinaryAccuracy()],
)
head_history = model.fit(images[56:], even[56:], batch_size=BATCH, epochs=1, shuffle=False)

base_model.trainable = True
model.compile(
    optimizer=keras.optimizers.Adam(1e-4),
    loss=keras.losses.BinaryCrossentropy(from_logits=True),
    metrics=[keras.metrics.BinaryAccuracy()],
)
history = model.fit(
    images[56:], even[56:], batch_size=BATCH, epochs=2, shuffle=False, validation_data=(images[:30], even[:30])
)
predictions = model.predict(images[:30])
