"""A forecast of time series: windows by timeseries_dataset_from_array, an LSTM, a checkpoint, early stopping."""

import os
import tempfile

import keras
import numpy as np
from keras import layers

BATCH = 12
keras.utils.set_random_seed(51)

time = np.arange(90)
noise = np.random.default_rng(0).normal(size=(90, 2))
features = np.stack([np.sin(time / 5), np.cos(time / 7)], axis=1) + 0.05 * noise
features = ((features - features[:60].mean(axis=0)) / features[:60].std(axis=0)).astype("float32")


def windows(start, end):
    return keras.utils.timeseries_dataset_from_array(
        features[start:end], features[start + 8 : end, :1], sequence_length=8, batch_size=BATCH
    )


dataset_train, dataset_val = windows(0, 60), windows(60, 90)
inputs = keras.layers.Input(shape=(8, 2))
lstm_out = layers.LSTM(6)(inputs)
model = keras.Model(inputs=inputs, outputs=layers.Dense(1)(lstm_out))
model.compile(optimizer=keras.optimizers.Adam(learning_rate=0.01), loss="mse")
path_checkpoint = os.path.join(tempfile.mkdtemp(), "model_checkpoint.weights.h5")
es_callback = keras.callbacks.EarlyStopping(monitor="val_loss", min_delta=0, patience=5)
modelckpt_callback = keras.callbacks.ModelCheckpoint(
    monitor="val_loss", filepath=path_checkpoint, save_weights_only=True, save_best_only=True
)
history = model.fit(dataset_train, epochs=3, validation_data=dataset_val, callbacks=[es_callback, modelckpt_callback])
forecast = model.predict(dataset_val)
