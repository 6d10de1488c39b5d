"""A convolutional classifier of digits with validation, class weights and several metrics."""

import keras
from keras import layers
from sklearn.datasets import load_digits

BATCH = 16
WORKERS = True
keras.utils.set_random_seed(1)

digits, labels = load_digits(return_X_y=True)
images = (digits / 16.0).astype("float32").reshape(-1, 8, 8, 1)
x_train, y_train = images[:104], labels[:104]
x_test, y_test = images[104:150], labels[104:150]

model = keras.Sequential(
    [
        keras.Input((8, 8, 1)),
        layers.Conv2D(8, 3, activation="relu"),
        layers.MaxPooling2D(),
        layers.Flatten(),
        layers.Dense(10, activation="softmax"),
    ]
)
model.compile(
    optimizer=keras.optimizers.Adam(1e-3),
    loss="sparse_categorical_crossentropy",
    metrics=["accuracy", keras.metrics.SparseTopKCategoricalAccuracy(3)],
)
history = model.fit(
    x_train,
    y_train,
    batch_size=BATCH,
    epochs=2,
    shuffle=False,
    class_weight={i: 1.0 + i / 10 for i in range(10)},
    validation_split=0.2,
)
results = model.evaluate(x_test, y_test, batch_size=BATCH, return_dict=True)
predictions = model.predict(x_test)
