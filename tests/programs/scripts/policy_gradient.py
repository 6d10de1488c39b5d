"""REINFORCE: the agent learns from each episode by a fit with a loss of its own, on actions and returns."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

BATCH = 12
keras.utils.set_random_seed(53)


class Agent(keras.Model):
    def __init__(self):
        super().__init__()
        self.common = layers.Dense(8, activation="tanh")
        self.actor = layers.Dense(2, activation="softmax")

    def call(self, states):
        return self.actor(self.common(states))

    def train_step(self, data):
        states, (actions, returns) = data
        with tf.GradientTape() as tape:
            probabilities = self(states, training=True)
            taken = ops.sum(probabilities * ops.one_hot(actions, 2, dtype=probabilities.dtype), axis=1)
            loss = -ops.mean(ops.log(taken) * returns)
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
        return {"loss": loss}


agent = Agent()
agent.compile(optimizer=keras.optimizers.Adam(1e-2))
rng = np.random.default_rng(0)
losses = []
for episode in range(3):
    state, states, actions, rewards = np.zeros(3, "float32"), [], [], []
    for t in range(20):
        action = int(rng.uniform() < 0.5)
        states.append(state)
        actions.append(action)
        state = (0.8 * state + rng.normal(size=3) + (2 * action - 1)).astype("float32")
        rewards.append(float(-abs(state.sum())))
    returns = np.cumsum(rewards[::-1])[::-1]
    returns = ((returns - returns.mean()) / (returns.std() + 1e-6)).astype("float32")
    history = agent.fit(np.stack(states), (np.array(actions), returns), batch_size=BATCH, shuffle=False, verbose=0)
    losses.append(history.history["loss"][0])
probabilities = agent.predict(np.stack(states))
