"""Which optimizers may a step meet, and what do they do with its gradients?"""

from __future__ import annotations

import keras
import tensorflow as tf

from tfscale.gradients import scope_checks
from tfscale.gradients.optimizers import reduce_gradients_once
from tfscale.gradients.sending import Sending, send_gradients
from tfscale.gradients.updaters import held_optimizers, innermost, updating
from tfscale.replicas.made import made_under


def meet_optimizers(model: keras.Model, strategy: tf.distribute.Strategy, sending: Sending) -> None:
    """Has every optimizer that a step of the model may meet add up the gradients of all replicas, once.

    Args:
        model: Prepared and built.
        strategy: Its strategy.
        sending: How they travel, of those that update variables of the model.

    Raises:
        ModelError: When one of these was made outside of the strategy's scope.
    """
    # Whoever's variables they update: in a step of this model they are met all the same.
    made = made_under(strategy).optimizers
    own = {id(each): each for each in (*held_optimizers(model), *updating(model, made))}
    for optimizer in own.values():
        scope_checks.check_inside_scope(innermost(optimizer).variables, "optimizer", optimizer.name)
        send_gradients(optimizer, sending, strategy)
    for optimizer in ({id(each): each for each in made} | own).values():
        reduce_gradients_once(optimizer)
