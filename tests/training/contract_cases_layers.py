"""Cases of the contract: every layer that Keras offers, those of one kind of input beside each other in one model."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import keras
import numpy as np

from tests.training.contract import Case, fitting

_L = keras.layers
# Two batches of eight, and one row: two of three replicas have none.
_BATCH, _ROWS = 8, 17
_RNG = np.random.default_rng(7)

Branch = Callable[[Any], Any]


def _scaled(shape: tuple[int, ...]) -> np.ndarray:
    return _RNG.uniform(0, 1, size=(_ROWS, *shape)).astype("float32")


# Tokens of 1 to 6 places, then zeros.
_TOKENS = (_RNG.integers(1, 9, size=(_ROWS, 6)) * (np.arange(6) < 1 + np.arange(_ROWS)[:, None] % 6)).astype("int32")
_INPUTS: dict[str, np.ndarray] = {
    "vectors": _scaled((6,)),
    "sequences": _scaled((6, 4)),
    "recurrent": _scaled((6, 4)),
    "sounds": _scaled((64,)),
    "tokens": _TOKENS,
    "masked tokens": _TOKENS,
    "images": _scaled((8, 8, 3)),
    "pooled images": _scaled((8, 8, 3)),
    "drawn images": _scaled((8, 8, 3)),
    "coloured images": _scaled((8, 8, 3)),
    "volumes": _scaled((4, 4, 4, 2)),
    "films": _scaled((3, 6, 6, 2)),
}
_TARGETS = _RNG.normal(size=(_ROWS, 2)).astype("float32")


def _with_itself(layer: Callable[[], Any]) -> Branch:
    """A layer of two inputs: what comes, and a linear image of it."""
    return lambda x: layer()([x, _L.Dense(x.shape[-1])(x)])


def _of_two(make: Callable[[], Any]) -> Branch:
    return lambda x: make()(x, x)


def _embedded(make: Callable[[], Any]) -> Branch:
    return lambda x: make()(_L.Embedding(9, 4, mask_zero=True)(x))


def _looked_up(make: Callable[[], Any], size: int) -> Branch:
    return lambda x: _L.Embedding(size, 3)(make()(x))


def _there_and_back(x: Any) -> Any:
    embedding = _L.ReversibleEmbedding(9, 4)
    return embedding(_L.Dense(4)(embedding(x)), reverse=True)


# Layers by kind of input; a name ends with what is special. What draws numbers is given no choice, or its choice shows
# in no mean: replicas draw streams of their own.
LAYERS: dict[str, Mapping[str, Branch]] = {
    "vectors": {
        "Activation": lambda x: _L.Activation("gelu")(_L.Dense(3)(x)),
        "ActivityRegularization": lambda x: _L.ActivityRegularization(0.01, 0.02)(_L.Dense(3)(x)),
        "AlphaDropout": lambda x: _L.AlphaDropout(0.0)(x),
        "BatchNormalization": lambda x: _L.BatchNormalization(momentum=0.5)(_L.Dense(3, use_bias=False)(x)),
        "Dense": lambda x: _L.Dense(
            3, kernel_regularizer="l2", activity_regularizer="l1", kernel_constraint="max_norm"
        )(x),
        "Dense, constrained": lambda x: _L.Dense(
            3, kernel_constraint=keras.constraints.UnitNorm(), bias_constraint="non_neg"
        )(x),
        "Discretization": _looked_up(lambda: _L.Discretization([0.3, 0.6]), 3),
        "Dropout": lambda x: _L.Dropout(0.0)(x),
        "ELU": lambda x: _L.ELU()(_L.Dense(3)(x)),
        "GaussianDropout": lambda x: _L.GaussianDropout(0.0)(x),
        "GaussianNoise": lambda x: _L.GaussianNoise(0.0)(x),
        "Identity": lambda x: _L.Identity()(x),
        "LeakyReLU": lambda x: _L.LeakyReLU()(_L.Dense(3)(x)),
        "Normalization": lambda x: _L.Normalization(mean=[0.1] * 6, variance=[2.0] * 6)(x),
        "ReLU": lambda x: _L.ReLU(max_value=1.0, negative_slope=0.1)(_L.Dense(3)(x)),
        "RepeatVector": lambda x: _L.RepeatVector(2)(_L.Dense(3)(x)),
        "Rescaling": lambda x: _L.Rescaling(2.0, 0.1)(x),
        "Reshape": lambda x: _L.Reshape((-1, 2))(x),
        "SpectralNormalization": lambda x: _L.SpectralNormalization(_L.Dense(4))(x),
        "UnitNormalization": lambda x: _L.UnitNormalization()(_L.Dense(3)(x)),
    },
    "sequences": {
        "Add": _with_itself(_L.Add),
        "AdditiveAttention": _with_itself(_L.AdditiveAttention),
        "Attention": _with_itself(lambda: _L.Attention(use_scale=True, score_mode="concat")),
        "Average": _with_itself(_L.Average),
        "BatchNormalization, axis": lambda x: _L.BatchNormalization(axis=1)(x),
        "Concatenate": _with_itself(lambda: _L.Concatenate(axis=1)),
        "Dot": _with_itself(lambda: _L.Dot(axes=2, normalize=True)),
        "EinsumDense": lambda x: _L.EinsumDense("abc,cd->abd", (None, 5), bias_axes="d")(x),
        "GroupQueryAttention": _of_two(lambda: _L.GroupQueryAttention(3, 4, 2)),
        "LayerNormalization": lambda x: _L.LayerNormalization()(x),
        "Maximum": _with_itself(_L.Maximum),
        "Minimum": _with_itself(_L.Minimum),
        "MultiHeadAttention": lambda x: _L.MultiHeadAttention(2, 3, value_dim=2, output_shape=5)(
            x, x, use_causal_mask=True
        ),
        "Multiply": _with_itself(_L.Multiply),
        "PReLU": lambda x: _L.PReLU(shared_axes=[1])(_L.Dense(3)(x)),
        "Permute": lambda x: _L.Permute((2, 1))(x),
        "RMSNormalization": lambda x: _L.RMSNormalization()(x),
        "Softmax": lambda x: _L.Softmax()(_L.Dense(3)(x)),
        "SpatialDropout1D": lambda x: _L.SpatialDropout1D(0.0)(x),
        "Subtract": _with_itself(_L.Subtract),
    },
    "recurrent": {
        "Bidirectional": lambda x: _L.Bidirectional(_L.LSTM(3, return_sequences=True), merge_mode="mul")(x),
        "GRU": lambda x: _L.GRU(3, go_backwards=True)(x),
        "GRU, plain": lambda x: _L.GRU(3, reset_after=False, unroll=True)(x),
        "LSTM": lambda x: _L.LSTM(3)(x),
        "Masking": lambda x: _L.LSTM(3, return_sequences=True)(_L.Masking(0.5)(x)),
        "SimpleRNN": lambda x: _L.SimpleRNN(3, return_sequences=True)(x),
        "GRUCell, LSTMCell, SimpleRNNCell, StackedRNNCells, RNN": lambda x: _L.RNN(
            _L.StackedRNNCells([_L.LSTMCell(3), _L.GRUCell(2), _L.SimpleRNNCell(2)])
        )(x),
        "Conv1D": lambda x: _L.Conv1D(3, 2, padding="causal")(x),
        "Conv1DTranspose": lambda x: _L.Conv1DTranspose(3, 2)(x),
        "Cropping1D, UpSampling1D, ZeroPadding1D": lambda x: _L.Cropping1D(1)(
            _L.ZeroPadding1D(2)(_L.UpSampling1D(2)(_L.Conv1D(2, 2)(x)))
        ),
        "DepthwiseConv1D": lambda x: _L.DepthwiseConv1D(2)(x),
        "SeparableConv1D": lambda x: _L.SeparableConv1D(3, 2)(x),
        **{
            name: lambda x, name=name: getattr(_L, name)(2)(_L.Conv1D(2, 2)(x))
            for name in ("AdaptiveAveragePooling1D", "AdaptiveMaxPooling1D", "AveragePooling1D", "MaxPooling1D")
        },
        "GlobalAveragePooling1D": lambda x: _L.GlobalAveragePooling1D()(_L.Conv1D(2, 2)(x)),
        "GlobalMaxPooling1D": lambda x: _L.GlobalMaxPooling1D()(_L.Conv1D(2, 2)(x)),
    },
    "sounds": {
        "MelSpectrogram": lambda x: _L.MelSpectrogram(
            fft_length=16, sequence_stride=8, num_mel_bins=4, sampling_rate=100, max_freq=50.0
        )(x),
        # The gradient of its logarithm divides by each frequency's size: on one device the last digit of the inputs
        # changes the kernel by 1e-4.
        "STFTSpectrogram": lambda x: _L.STFTSpectrogram("magnitude", 16, 8)(_L.Reshape((64, 1))(x)),
    },
    "tokens": {
        "CategoryEncoding": lambda x: _L.CategoryEncoding(9, output_mode="count")(x),
        "Embedding": lambda x: _L.Embedding(9, 3, embeddings_regularizer="l2")(x),
        "HashedCrossing": lambda x: _L.Embedding(5, 3)(_L.HashedCrossing(5)([x[:, 0], x[:, 1]])),
        "Hashing": _looked_up(lambda: _L.Hashing(4), 4),
        "IntegerLookup": _looked_up(lambda: _L.IntegerLookup(vocabulary=[1, 2, 3, 4, 5]), 6),
        "ReversibleEmbedding": _there_and_back,
    },
    "masked tokens": {
        "BatchNormalization, masked": _embedded(lambda: _L.BatchNormalization()),
        "Bidirectional, masked": _embedded(lambda: _L.Bidirectional(_L.GRU(2))),
        "GlobalAveragePooling1D, masked": _embedded(_L.GlobalAveragePooling1D),
        "LSTM, masked": _embedded(lambda: _L.LSTM(3)),
        "TimeDistributed, masked": _embedded(lambda: _L.TimeDistributed(_L.Dense(2))),
        "MultiHeadAttention, masked": lambda x: _embedded(lambda: lambda e: _L.MultiHeadAttention(2, 3)(e, e))(x),
    },
    "images": {
        "BatchNormalization, images": lambda x: _L.BatchNormalization(center=False)(_L.Conv2D(2, 2)(x)),
        "CenterCrop, Resizing": lambda x: _L.Resizing(4, 4)(_L.CenterCrop(6, 6)(x)),
        "Conv2D": lambda x: _L.Conv2D(3, 2, strides=2)(x),
        "Conv2D, groups": lambda x: _L.Conv2D(3, 2, groups=3, dilation_rate=2)(x),
        "Conv2DTranspose": lambda x: _L.Conv2DTranspose(2, 2, strides=2)(x),
        "Cropping2D, UpSampling2D, ZeroPadding2D": lambda x: _L.Cropping2D(1)(
            _L.ZeroPadding2D(2)(_L.UpSampling2D(2, interpolation="bilinear")(_L.Conv2D(2, 2)(x)))
        ),
        "DepthwiseConv2D": lambda x: _L.DepthwiseConv2D(2)(x),
        "GroupNormalization": lambda x: _L.GroupNormalization(-1)(_L.Conv2D(4, 2)(x)),
        "LayerNormalization, axes": lambda x: _L.LayerNormalization(axis=(1, 2))(x),
        "SeparableConv2D": lambda x: _L.SeparableConv2D(3, 2)(x),
        "SpectralNormalization, Conv2D": lambda x: _L.SpectralNormalization(_L.Conv2D(3, 2), power_iterations=2)(x),
    },
    "pooled images": {
        "Flatten": lambda x: _L.Flatten()(x),
        "GlobalAveragePooling2D": lambda x: _L.GlobalAveragePooling2D(keepdims=True)(_L.Conv2D(2, 2)(x)),
        "GlobalMaxPooling2D": lambda x: _L.GlobalMaxPooling2D()(_L.Conv2D(2, 2)(x)),
        **{
            name: lambda x, name=name: getattr(_L, name)(2)(_L.Conv2D(2, 2)(x))
            for name in ("AdaptiveAveragePooling2D", "AdaptiveMaxPooling2D", "AveragePooling2D", "MaxPooling2D")
        },
    },
    "drawn images": {
        "RandomCrop": lambda x: _L.RandomCrop(8, 8)(x),
        "RandomElasticTransform": lambda x: _L.RandomElasticTransform(0.0, value_range=(0, 1))(x),
        "RandomErasing": lambda x: _L.RandomErasing(0.0)(x),
        "RandomFlip": lambda x: _L.GlobalAveragePooling2D()(_L.RandomFlip()(x)),
        "RandomPerspective": lambda x: _L.RandomPerspective(0.0)(x),
        "RandomRotation": lambda x: _L.RandomRotation((0.1, 0.1))(x),
        "RandomShear": lambda x: _L.RandomShear(0.0, 0.0)(x),
        "RandomTranslation": lambda x: _L.RandomTranslation((0.2, 0.2), (0.1, 0.1))(x),
        "RandomZoom": lambda x: _L.RandomZoom((0.2, 0.2))(x),
        "SpatialDropout2D": lambda x: _L.SpatialDropout2D(0.0)(x),
    },
    "coloured images": {
        "AutoContrast": lambda x: _L.AutoContrast((0, 1))(x),
        "ContrastLimitedAdaptiveHistogramEqualization": lambda x: _L.ContrastLimitedAdaptiveHistogramEqualization(
            (0, 1)
        )(x),
        "Equalization": lambda x: _L.Equalization((0, 1))(x),
        "RandomBrightness": lambda x: _L.RandomBrightness((0.2, 0.2), (0, 1))(x),
        "RandomColorDegeneration": lambda x: _L.RandomColorDegeneration((0.5, 0.5), (0, 1))(x),
        "RandomColorJitter": lambda x: _L.RandomColorJitter((0, 1))(x),
        "RandomContrast": lambda x: _L.RandomContrast(0.0, (0, 1))(x),
        "RandomGaussianBlur": lambda x: _L.RandomGaussianBlur(0.0, value_range=(0, 1))(x),
        "RandomGrayscale": lambda x: _L.RandomGrayscale(1.0)(x),
        "RandomHue": lambda x: _L.RandomHue(0.0, (0, 1))(x),
        "RandomInvert": lambda x: _L.RandomInvert(0.0, (0, 1))(x),
        "RandomPosterization": lambda x: _L.RandomPosterization((4, 4), (0, 1))(x),
        "RandomSaturation": lambda x: _L.RandomSaturation((0.7, 0.7), (0, 1))(x),
        "RandomSharpness": lambda x: _L.RandomSharpness((0.5, 0.5), (0, 1))(x),
        "Solarization": lambda x: _L.Solarization(0.0, 0.0, (0, 1))(x),
    },
    "volumes": {
        "Conv3D": lambda x: _L.Conv3D(2, 2)(x),
        "Conv3DTranspose": lambda x: _L.Conv3DTranspose(2, 2)(x),
        "Cropping3D, UpSampling3D, ZeroPadding3D": lambda x: _L.Cropping3D(1)(
            _L.ZeroPadding3D(1)(_L.UpSampling3D(2)(_L.Conv3D(2, 2)(x)))
        ),
        "SpatialDropout3D": lambda x: _L.SpatialDropout3D(0.0)(x),
        "GlobalAveragePooling3D": lambda x: _L.GlobalAveragePooling3D()(_L.Conv3D(2, 2)(x)),
        "GlobalMaxPooling3D": lambda x: _L.GlobalMaxPooling3D()(_L.Conv3D(2, 2)(x)),
        **{
            name: lambda x, name=name: getattr(_L, name)(2)(_L.Conv3D(2, 2)(x))
            for name in ("AdaptiveAveragePooling3D", "AdaptiveMaxPooling3D", "AveragePooling3D", "MaxPooling3D")
        },
    },
    "films": {
        "ConvLSTM1D": lambda x: _L.ConvLSTM1D(2, 2)(x[..., 0]),
        "ConvLSTM2D": lambda x: _L.ConvLSTM2D(2, 2)(x),
        "ConvLSTM3D": lambda x: _L.ConvLSTM3D(1, 2)(x[..., None]),
        "TimeDistributed": lambda x: _L.TimeDistributed(_L.Conv2D(2, 2))(x),
        "TimeDistributed, BatchNormalization": lambda x: _L.TimeDistributed(_L.BatchNormalization())(x),
    },
}

# Nothing is learned, or only what a program brings along: bases, inputs, text, other backends. `Lambda` runs what it is
# given, and a `Pipeline` its layers.
OTHERS = {
    "FlaxLayer",
    "InputLayer",
    "JaxLayer",
    "Lambda",
    "Layer",
    "MaxNumBoundingBoxes",
    "Pipeline",
    "StringLookup",
    "TFSMLayer",
    "TextVectorization",
    "TorchModuleWrapper",
    "Wrapper",
}
# They choose what they do, or which rows they mix: replicas choose otherwise than one device.
CHOOSING = {"AugMix", "CutMix", "MixUp", "RandAugment"}


def offered_layers() -> set[str]:
    """Names of the layer classes in the public namespace of the installed Keras, without second names."""
    return {
        name
        for name, found in vars(_L).items()
        if inspect.isclass(found) and issubclass(found, keras.layers.Layer) and found.__name__ == name
    }


def covered_layers() -> set[str]:
    """Names of the layers that a case builds."""
    names = {name.strip() for branches in LAYERS.values() for key in branches for name in key.split(",")}
    return names & offered_layers()


def _beside_each_other(kind: str) -> keras.Model:
    inputs = keras.Input(_INPUTS[kind].shape[1:], dtype=_INPUTS[kind].dtype.name)
    known = offered_layers()
    # Added up, so that no branch's gradient depends on the others' number.
    ends = [branch(inputs) for name, branch in LAYERS[kind].items() if name.split(",")[0] in known]
    flat = [(_L.GlobalAveragePooling1D if None in end.shape[1:] else _L.Flatten)()(end) for end in ends]
    return keras.Model(inputs, _L.Add()([_L.Dense(2)(end) for end in flat]))


def _learning(kind: str) -> Case:
    # Masks end where the branches are added up, and are not meant to go on.
    return _fitted(lambda: _beside_each_other(kind), kind, warns="Layer 'flatten.*does not support masking")


def _fitted(build: Callable[[], keras.Model], kind: str, warns: str = "") -> Case:
    return fitting(
        build,
        lambda: {"optimizer": keras.optimizers.SGD(0.002, momentum=0.9), "loss": "mse"},
        lambda: {"x": _INPUTS[kind], "y": _TARGETS, "batch_size": _BATCH},
        evaluated=True,
        global_batch=_BATCH,
        warns=warns,
    )


def _between(layer: Branch) -> Callable[[], keras.Model]:
    def build() -> keras.Model:
        inputs = keras.Input((6,))
        return keras.Model(inputs, _L.Dense(2)(layer(_L.Dense(3, activation="tanh")(inputs))))

    return build


# Without a word of theirs these work along the rows, as of the shape of what they get.
ALONG_ROWS: dict[str, Branch] = {
    "Attention of vectors": _with_itself(_L.Attention),
    "AdditiveAttention of vectors": _with_itself(_L.AdditiveAttention),
    "Softmax over the last axis but one": lambda x: _L.Softmax(axis=-2)(x),
    "LayerNormalization over both axes": lambda x: _L.LayerNormalization(axis=[-2, -1], center=False, scale=False)(x),
    "softmax of one number for each row": lambda x: _L.Reshape((1,))(
        _L.Activation("softmax")(_L.Reshape(())(_L.Dense(1)(x)))
    ),
}

CASES: dict[str, Case] = {f"layers of {kind}": _learning(kind) for kind in LAYERS} | {
    name: _fitted(_between(layer), "vectors") for name, layer in ALONG_ROWS.items()
}
