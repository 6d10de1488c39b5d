"""Recognition of text by CTC: an endpoint layer with add_loss takes the labels as an input, the rest predicts alone."""

import keras
import numpy as np
from keras import layers, ops

BATCH = 8
keras.utils.set_random_seed(30)
STEPS, CLASSES = 8, 5


class CTCLayer(layers.Layer):
    def call(self, y_true, y_pred):
        batch_len = ops.shape(y_true)[0]
        input_length = ops.full((batch_len,), STEPS, dtype="int32")
        label_length = ops.full((batch_len,), ops.shape(y_true)[1], dtype="int32")
        loss = ops.ctc_loss(y_true, y_pred, label_length, input_length, mask_index=0)
        self.add_loss(ops.mean(loss))
        return y_pred


images = layers.Input(shape=(STEPS, 6), name="image")
labels = layers.Input(shape=(3,), dtype="int32", name="label")
x = layers.Bidirectional(layers.LSTM(6, return_sequences=True))(images)
x = layers.Dense(CLASSES, name="dense2")(x)
model = keras.Model(inputs=[images, labels], outputs=CTCLayer(name="ctc_loss")(labels, x))
model.compile(optimizer=keras.optimizers.Adam(1e-2))

rng = np.random.default_rng(0)
data = {
    "image": rng.normal(size=(20, STEPS, 6)).astype("float32"),
    "label": rng.integers(1, CLASSES, (20, 3)).astype("int32"),
}
history = model.fit(data, batch_size=BATCH, epochs=2, shuffle=False)
prediction_model = keras.Model(model.get_layer("image").output, model.get_layer("dense2").output)
predictions = prediction_model.predict(data["image"])
