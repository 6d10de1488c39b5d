"""Which of Keras's own layers look at all rows of a batch for each of them, and how do they see those of all replicas?

`MelSpectrogram` lifts what is quieter than the loudest sound of the batch less `top_db`; `Equalization` counts how
often each brightness occurs in all pictures of the batch; `TextVectorization` fills texts up to the longest one.
BatchNormalization has a file of its own (`batch_norm.py`), and rows that meet in an order that is drawn (`MixUp`,
`CutMix`) are found by the look at the first step.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import keras
import tensorflow as tf

from tfscale.errors import ModelError
from tfscale.exact.batch_norm import set_batch_norm
from tfscale.exact.gather import gather_rows
from tfscale.framework.layers import (
    count_values,
    decibels,
    pads_to_longest,
    replace_count_values,
    replace_decibels,
)
from tfscale.framework.models import flat_layers
from tfscale.replicas.all_reduce import all_reduce_sum
from tfscale.replicas.share import current_share, num_replicas

# Which of their parts they run, they draw: one replica would wait for what another does not send.
_DRAWN = (keras.layers.RandAugment, keras.layers.AugMix)


def make_layers_global(model: keras.Model, batch_norm: str) -> None:
    """Lets Keras's own layers that look at all rows of a batch see those of all replicas. Idempotent.

    Args:
        model: Any Keras model.
        batch_norm: For BatchNormalization: `"local"` or `"synchronized"`.
    """
    set_batch_norm(model, batch_norm)
    for layer in batch_wide_layers(model):
        if isinstance(layer, keras.layers.MelSpectrogram):
            replace_decibels(layer, _decibels_of_step(layer))
        elif isinstance(layer, keras.layers.TextVectorization):
            layer.call = _tokens_of_step(layer)
        else:
            replace_count_values(layer, _counts_of_step(layer))


def batch_wide_layers(model: keras.Model) -> Iterator[keras.layers.Layer]:
    """Every such layer of `model`, at any depth.

    Example:
        >>> import keras
        >>> model = keras.Sequential([keras.Input((9, 9, 3)), keras.layers.Equalization(), keras.layers.Flatten()])
        >>> [layer.name for layer in batch_wide_layers(model)]
        ['equalization']
    """
    layers = flat_layers(model)
    drawn = {id(part) for layer in layers if isinstance(layer, _DRAWN) for part in flat_layers(layer)}
    for layer in layers:
        is_wide = isinstance(layer, keras.layers.MelSpectrogram | keras.layers.Equalization) or fills_up(layer)
        if is_wide and id(layer) not in drawn:
            yield layer


def fills_up(layer: keras.layers.Layer) -> bool:
    """Whether the length of what a layer makes of one text is that of the longest text of the batch.

    Example:
        >>> import keras
        >>> TextVectorization = keras.layers.TextVectorization
        >>> fills_up(TextVectorization()), fills_up(TextVectorization(output_sequence_length=8))
        (True, False)
    """
    return isinstance(layer, keras.layers.TextVectorization) and pads_to_longest(layer)


def _decibels_of_step(layer: keras.layers.MelSpectrogram) -> Any:
    def of_step(inputs: tf.Tensor) -> tf.Tensor:
        own = decibels(layer)
        if not _is_divided(layer):
            return own(inputs)
        inputs = tf.convert_to_tensor(inputs)
        loudest = tf.reduce_max(gather_rows(tf.reduce_max(inputs, axis=tuple(range(1, inputs.shape.rank)))))
        # As one row more, the loudest sound of all replicas is one of those among which Keras looks for it.
        row = tf.fill(tf.concat([[1], tf.shape(inputs)[1:]], 0), loudest)
        return own(tf.concat([inputs, row], 0))[:-1]

    return of_step


def _counts_of_step(layer: keras.layers.Equalization) -> Any:
    def of_step(values: tf.Tensor, value_range: Any, nbins: int) -> tf.Tensor:
        own = count_values(layer)
        if not _is_divided(layer):
            return own(values, value_range, nbins)
        share = current_share()
        # A replica without rows computes on a stand-in, which does not count.
        rows = values if share is None else values[: tf.cast(share.num_examples, tf.int64)]
        counts = own(rows, value_range, nbins)
        (total,) = all_reduce_sum([counts])
        return total

    return of_step


def _tokens_of_step(layer: keras.layers.TextVectorization) -> Any:
    own = type(layer).call.__get__(layer)

    def of_step(inputs: Any) -> Any:
        tokens = own(inputs)
        return _as_long_as_the_longest(tokens) if _is_divided(layer) else tokens

    return of_step


def _as_long_as_the_longest(tokens: tf.Tensor) -> tf.Tensor:
    shape = tf.shape(tokens)
    longest = tf.reduce_max(gather_rows(tf.repeat(shape[tf.newaxis, 1:], shape[0], axis=0)), axis=0)
    # A replica without rows computes on a stand-in, which may be longer.
    kept = tokens[:, : longest[0]]
    filled = tf.pad(kept, [[0, 0], [0, longest[0] - tf.shape(kept)[1]]])
    # Eagerly the shape is that of this replica's own texts.
    return filled if tf.executing_eagerly() else tf.ensure_shape(filled, tokens.shape)


def _is_divided(layer: keras.layers.Layer) -> bool:
    """Whether the rows at hand are those of one replica among several."""
    share = current_share()
    if share is None:
        return not tf.distribute.in_cross_replica_context() and num_replicas() > 1
    if share.is_part:
        raise ModelError(
            "With `micro_batch` or `logical_replicas` a step sees a part of the rows at a time, and this layer needs "
            "the whole batch for each of them.\n"
            f"Received: {type(layer).__name__} {layer.name!r} in such a part. Leave these out, or apply the layer "
            "where the data are made: `dataset.map`."
        )
    return not share.is_whole
