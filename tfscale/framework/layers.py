"""The unpromised names of Keras's layers: batch statistics, generators, axes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras

from tfscale.framework.hooks import own_method, read, replace
from tfscale.framework.models import flat_layers


def generators_of_layers(model: keras.Model) -> list[keras.random.SeedGenerator]:
    """Every `SeedGenerator` held by a layer of `model`.

    Why: Keras tracks them in a private list; looking for attributes would miss those kept in lists or dicts.
    Breaks first: tests/exact/test_randomness.py.
    """
    return [generator for layer in flat_layers(model) for generator in read(layer, "_seed_generators")]


def axes_of(owner: Any) -> list[Any]:
    """What a layer, loss or metric of Keras was told to work along, by whatever name.

    Why: attention keeps its axes under a name of its own, and `get_config` fails, or warns, where a part of the owner,
    such as a regularizer, is somebody's own.
    Breaks first: tests/training/check/test_vouching.py.
    """
    return [getattr(owner, name, None) for name in ("axis", "axes", "_attention_axes")]


def ranks_of_inputs(layer: keras.layers.Layer) -> list[int]:
    """How many axes the tensors have with which functional models were made of `layer`; none for a layer within others.

    Why: `layer.input` raises where it was called twice. Breaks first: tests/training/check/test_vouching.py.
    """
    return [len(tensor.shape) for node in read(layer, "_inbound_nodes") for tensor in node.input_tensors]


def batch_moments(layer: keras.layers.BatchNormalization) -> Callable[[Any, Any], tuple[Any, Any]]:
    """Keras's own `(inputs, mask) -> (mean, variance)` of one BatchNormalization layer."""
    return own_method(layer, "_moments")


def replace_batch_moments(layer: keras.layers.BatchNormalization, moments: Callable[[Any, Any], Any]) -> None:
    """Computes the batch statistics of one BatchNormalization layer with `moments(inputs, mask)`.

    Why: everything else in the layer (moving averages, renorm, dtypes) is right as it is.
    Breaks first: tests/exact/test_batch_norm.py.
    """
    replace(layer, "_moments", moments)


def reduction_axes(layer: keras.layers.BatchNormalization) -> list[int]:
    """The axes over which a built BatchNormalization layer averages."""
    return list(read(layer, "_reduction_axes"))


def decibels(layer: keras.layers.MelSpectrogram) -> Callable[[Any], Any]:
    """Keras's own `(inputs) -> decibels` of one MelSpectrogram layer."""
    return own_method(layer, "_dbscale")


def replace_decibels(layer: keras.layers.MelSpectrogram, function: Callable[[Any], Any]) -> None:
    """Computes the decibels of one MelSpectrogram layer with `function(inputs)`.

    Why: they have a floor below the loudest of all rows of the batch; everything else in the layer is of one row.
    Breaks first: tests/exact/test_batch_wide_layers.py.
    """
    replace(layer, "_dbscale", function)


def count_values(layer: keras.layers.Equalization) -> Callable[[Any, Any, int], Any]:
    """Keras's own `(values, value_range, nbins) -> counts` of one Equalization layer."""
    return own_method(layer, "_custom_histogram_fixed_width")


def replace_count_values(layer: keras.layers.Equalization, function: Callable[[Any, Any, int], Any]) -> None:
    """Counts how often each brightness occurs with `function(values, value_range, nbins)`, in one Equalization layer.

    Why: it is counted in all rows of the batch, while each row is then looked up by itself.
    Breaks first: tests/exact/test_batch_wide_layers.py.
    """
    replace(layer, "_custom_histogram_fixed_width", function)


def pads_to_longest(layer: keras.layers.TextVectorization) -> bool:
    """Whether a layer fills texts up to the longest of its batch.

    Why: what it was told is in nothing public but `get_config`, which copies the vocabulary, and fails for functions
    of a script's own.
    Breaks first: tests/exact/test_batch_wide_layers.py.
    """
    has_a_length = read(layer, "_output_sequence_length") is not None
    return read(layer, "_output_mode") == "int" and not has_a_length and not read(layer, "_ragged")
