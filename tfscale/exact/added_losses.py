"""Where does a loss that a layer adds meet the convention of `share.py`?

Keras takes whatever a layer gives to `add_loss`: most are means, some are sums over the examples. Each is met where it
is added, in whatever layer, mode and order, and weighted as `terms.py` knows it.
"""

from __future__ import annotations

import functools
import weakref
from typing import Any

import keras
import tensorflow as tf

from tfscale.exact.randomness import drawing_alike
from tfscale.exact.terms import as_mean, meet_term
from tfscale.framework.losses import have_regularizers_called_in
from tfscale.framework.models import flat_layers
from tfscale.replicas.share import current_share


def meet_added_losses(model: keras.Model) -> None:
    """Makes what the layers of `model` give to `add_loss` obey the convention of `share.py` in a step. Idempotent."""
    for layer in flat_layers(model):
        layer.add_loss = functools.partial(_add_loss, weakref.ref(layer))
        # What one draws is noise of the weights, not of the rows.
        have_regularizers_called_in(layer, drawing_alike)


def _add_loss(reference: weakref.ref[keras.layers.Layer], loss: Any) -> None:
    layer: Any = reference()
    type(layer).add_loss(layer, keras.tree.map_structure(functools.partial(_weighted, layer), loss))


def _weighted(layer: keras.layers.Layer, loss: Any) -> Any:
    share = current_share()
    if share is None or not tf.is_tensor(loss):
        return loss
    is_sum = meet_term("add_loss", layer, f"layer {layer.name!r}", [tf.reduce_sum(loss)])
    return as_mean(loss, share) if is_sum and not share.is_whole else loss
