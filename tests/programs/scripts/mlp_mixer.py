"""An MLP-mixer with a Keras learning-rate callback, early stopping and label smoothing."""

import keras
from keras import layers
from sklearn.datasets import load_digits

BATCH = 12
keras.utils.set_random_seed(16)


class MLPMixerLayer(layers.Layer):
    def __init__(self, num_patches, hidden_units):
        super().__init__()
        self.mlp1 = keras.Sequential([layers.Dense(num_patches, activation="gelu"), layers.Dense(num_patches)])
        self.mlp2 = keras.Sequential([layers.Dense(hidden_units, activation="gelu"), layers.Dense(hidden_units)])
        self.normalize = layers.LayerNormalization(epsilon=1e-6)

    def build(self, input_shape):
        return super().build(input_shape)

    def call(self, inputs):
        x = self.normalize(inputs)
        x_channels = keras.ops.transpose(x, axes=(0, 2, 1))
        mlp1_outputs = keras.ops.transpose(self.mlp1(x_channels), axes=(0, 2, 1))
        x = mlp1_outputs + inputs
        return x + self.mlp2(self.normalize(x))


inputs = keras.Input((8, 8))
x = layers.Dense(12)(inputs)
x = keras.Sequential([MLPMixerLayer(8, 12) for _ in range(2)])(x)
x = layers.GlobalAveragePooling1D()(x)
model = keras.Model(inputs, layers.Dense(10, activation="softmax")(x))
model.compile(
    optimizer=keras.optimizers.Adam(learning_rate=5e-3),
    loss=keras.losses.CategoricalCrossentropy(label_smoothing=0.1),
    metrics=["accuracy"],
)
digits = load_digits()
images = (digits.images[:56] / 16.0).astype("float32")
labels = keras.utils.to_categorical(digits.target[:56], 10)
history = model.fit(
    x=images,
    y=labels,
    batch_size=BATCH,
    epochs=3,
    shuffle=False,
    validation_split=0.25,
    callbacks=[
        keras.callbacks.ReduceLROnPlateau(monitor="val_loss", factor=0.5, patience=1),
        keras.callbacks.EarlyStopping(monitor="val_loss", patience=2, restore_best_weights=True),
    ],
)
results = model.evaluate(images[44:], labels[44:], batch_size=BATCH)
