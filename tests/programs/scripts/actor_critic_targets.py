"""DDPG: an actor and a critic in one step of a loop of one's own, and target networks that follow by assign."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

BATCH = 7
keras.utils.set_random_seed(81)


def make_actor():
    return keras.Sequential([keras.Input((3,)), layers.Dense(8, activation="relu"), layers.Dense(1, activation="tanh")])


def make_critic():
    state, action = keras.Input((3,)), keras.Input((1,))
    x = layers.Dense(8, activation="relu")(layers.Concatenate()([state, action]))
    return keras.Model([state, action], layers.Dense(1)(x))


actor, critic, target_actor, target_critic = make_actor(), make_critic(), make_actor(), make_critic()
target_actor.set_weights(actor.get_weights())
target_critic.set_weights(critic.get_weights())
critic_optimizer, actor_optimizer = keras.optimizers.Adam(0.002), keras.optimizers.Adam(0.001)


@tf.function
def train_step(state, action, reward, next_state):
    with tf.GradientTape() as tape:
        wanted = reward + 0.99 * target_critic([next_state, target_actor(next_state)])
        critic_loss = ops.mean(ops.square(wanted - critic([state, action], training=True)))
    gradients = tape.gradient(critic_loss, critic.trainable_variables)
    critic_optimizer.apply_gradients(zip(gradients, critic.trainable_variables))
    with tf.GradientTape() as tape:
        actor_loss = -ops.mean(critic([state, actor(state, training=True)]))
    gradients = tape.gradient(actor_loss, actor.trainable_variables)
    actor_optimizer.apply_gradients(zip(gradients, actor.trainable_variables))
    return critic_loss


@tf.function
def update_target(target, original):
    for slow, fast in zip(target.variables, original.variables):
        slow.assign(fast * 0.05 + slow * 0.95)


rng = np.random.default_rng(0)
buffer = [rng.normal(size=(64, width)).astype("float32") for width in (3, 1, 1, 3)]
losses = []
for _ in range(5):
    rows = rng.choice(64, BATCH)
    losses.append(float(train_step(*[tf.convert_to_tensor(part[rows]) for part in buffer])))
    update_target(target_actor, actor)
    update_target(target_critic, critic)
