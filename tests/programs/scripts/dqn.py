"""Deep Q-learning: a target network, a replay memory, train_on_batch on targets made by predict_on_batch."""

import keras
import numpy as np
from keras import layers

BATCH = 10
keras.utils.set_random_seed(54)


def create_q_model():
    model = keras.Sequential([keras.Input((4,)), layers.Dense(8, activation="tanh"), layers.Dense(2)])
    model.compile(optimizer=keras.optimizers.Adam(1e-2, clipnorm=1.0), loss=keras.losses.Huber())
    return model


model = create_q_model()
model_target = create_q_model()
model_target.set_weights(model.get_weights())

rng = np.random.default_rng(0)
states = rng.normal(size=(60, 4)).astype("float32")
next_states = (0.9 * states + 0.1 * rng.normal(size=states.shape)).astype("float32")
actions, rewards = rng.integers(0, 2, 60), rng.normal(size=60).astype("float32")
losses = []
for step in range(8):
    indices = rng.choice(60, BATCH, replace=False)
    future_rewards = model_target.predict_on_batch(next_states[indices])
    updated_q_values = rewards[indices] + 0.9 * np.max(future_rewards, axis=1)
    targets = np.array(model.predict_on_batch(states[indices]))
    targets[np.arange(BATCH), actions[indices]] = updated_q_values
    losses.append(float(model.train_on_batch(states[indices], targets)))
    if step % 3 == 2:
        model_target.set_weights(model.get_weights())
q_values = model.predict(states)
