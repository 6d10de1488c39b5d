"""A vision Transformer: patches, a learned position embedding, AdamW, the best weights kept."""

import os
import tempfile

import keras
from keras import layers, ops
from sklearn.datasets import load_digits

BATCH = 12
WORKERS = True
PATCH_SIZE, NUM_PATCHES, PROJECTION_DIM, NUM_LAYERS = 2, 16, 8, 1
keras.utils.set_random_seed(15)


class PatchEncoder(layers.Layer):
    def __init__(self, num_patches, projection_dim):
        super().__init__()
        self.num_patches = num_patches
        self.projection = layers.Dense(units=projection_dim)
        self.position_embedding = layers.Embedding(input_dim=num_patches, output_dim=projection_dim)

    def call(self, patch):
        positions = ops.expand_dims(ops.arange(start=0, stop=self.num_patches, step=1), axis=0)
        return self.projection(patch) + self.position_embedding(positions)


def create_vit_classifier():
    inputs = keras.Input(shape=(8, 8, 1))
    patches = layers.Lambda(lambda x: ops.image.extract_patches(x, size=PATCH_SIZE))(inputs)
    patches = layers.Reshape((NUM_PATCHES, PATCH_SIZE * PATCH_SIZE))(patches)
    encoded_patches = PatchEncoder(NUM_PATCHES, PROJECTION_DIM)(patches)
    for _ in range(NUM_LAYERS):
        x1 = layers.LayerNormalization(epsilon=1e-6)(encoded_patches)
        attention_output = layers.MultiHeadAttention(num_heads=2, key_dim=PROJECTION_DIM)(x1, x1)
        x2 = layers.Add()([attention_output, encoded_patches])
        x3 = layers.LayerNormalization(epsilon=1e-6)(x2)
        x3 = layers.Dense(PROJECTION_DIM, activation=keras.activations.gelu)(x3)
        encoded_patches = layers.Add()([x3, x2])
    representation = layers.Flatten()(layers.LayerNormalization(epsilon=1e-6)(encoded_patches))
    return keras.Model(inputs=inputs, outputs=layers.Dense(10)(representation))


digits = load_digits()
x_train, y_train = (digits.images[:56, ..., None] / 16.0).astype("float32"), digits.target[:56]
model = create_vit_classifier()
model.compile(
    optimizer=keras.optimizers.AdamW(learning_rate=1e-3, weight_decay=1e-4),
    loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    metrics=[keras.metrics.SparseCategoricalAccuracy(name="accuracy")],
)
checkpoint_filepath = os.path.join(tempfile.mkdtemp(), "checkpoint.weights.h5")
callbacks = [keras.callbacks.ModelCheckpoint(checkpoint_filepath, save_best_only=True, save_weights_only=True)]
history = model.fit(
    x_train, y_train, batch_size=BATCH, epochs=2, validation_split=0.2, shuffle=False, callbacks=callbacks
)
model.load_weights(checkpoint_filepath)
loss, accuracy = model.evaluate(x_train[40:], y_train[40:])
