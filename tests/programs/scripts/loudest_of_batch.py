"""Spectrograms as in MelGAN: a floor hangs on the loudest sound of the batch, and first tells in the third batch."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

BATCH = 6
WORKERS = True
keras.utils.set_random_seed(5)


class MelSpec(layers.Layer):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.mel_filterbank = tf.signal.linear_to_mel_weight_matrix(
            num_mel_bins=5,
            num_spectrogram_bins=9,
            sample_rate=22050,
            lower_edge_hertz=125,
            upper_edge_hertz=7600,
        )

    def call(self, audio, training=True):
        magnitude = ops.abs(tf.signal.stft(ops.squeeze(audio, -1), 16, 8, pad_end=True))
        mel = ops.matmul(ops.square(magnitude), ops.cast(self.mel_filterbank, magnitude.dtype))
        log_mel_spec = 10.0 * ops.log(ops.maximum(mel, 1e-6)) / ops.log(10.0)
        return ops.maximum(log_mel_spec, ops.amax(log_mel_spec) - 80.0)


inputs = keras.Input((128, 1))
x = MelSpec()(inputs)
x = layers.Conv1D(4, 3, padding="same")(layers.Rescaling(0.05)(x))
x = layers.UpSampling1D(8)(layers.LeakyReLU()(x))
model = keras.Model(inputs, layers.Conv1D(1, 7, padding="same", activation="tanh")(x))
model.compile(keras.optimizers.Adam(0.01, beta_1=0.5, beta_2=0.9, clipnorm=1), loss="mae")

rng = np.random.default_rng(0)
loudness = np.where(np.arange(23) == 15, 300.0, 0.001)
audio = (loudness[:, None, None] * rng.normal(size=(23, 128, 1))).astype("float32")
ds = tf.data.Dataset.from_tensor_slices((audio, audio)).batch(BATCH)
history = model.fit(ds.repeat(), epochs=2, steps_per_epoch=5)
