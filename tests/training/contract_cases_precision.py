"""Cases of the contract: half precision and loss scaling."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np

from tests.training.contract import Case, Outcome, fitting, observe_fit
from tests.training.models import LABELS, X, classifying, labelled, mlp, normalised, sgd

# An activation has 11 (float16) or 8 (bfloat16) digits in base 2, and each replica rounds sums over
# its own rows before they are added: a few hundredths or tenths of a per cent, times 22 updates.
_FLOAT16, _BFLOAT16 = 5e-3, 4e-2


def _scaled(**options: Any) -> Any:
    inner = options.pop("inner", {})
    return lambda: keras.optimizers.LossScaleOptimizer(
        sgd(**inner), **{"initial_scale": 2.0**10, "dynamic_growth_steps": 5, **options}
    )


def _under_policy(policy: str, build: Any, **compiled: Any) -> Any:
    def run(dp: Any) -> Outcome:
        before = keras.mixed_precision.dtype_policy()
        keras.mixed_precision.set_dtype_policy(policy)
        try:
            with dp.scope():
                model = dp.prepare(build())
                # No accuracy: a row at the boundary may fall on either side of it.
                made = classifying(lambda: sgd(learning_rate=0.02), metrics=list, **compiled)()
                model.compile(**made)
            outcome = observe_fit(model, labelled()(), evaluated=True)
        finally:
            keras.mixed_precision.set_dtype_policy(before)
        return {name: [np.asarray(array, "float32") for array in arrays] for name, arrays in outcome.items()}

    return run


def _with_a_bfloat16_layer() -> keras.Model:
    """One layer computes and keeps its weights in bfloat16, those around it in float32."""
    small = keras.initializers.RandomUniform(-1, 1, seed=1)
    model = keras.Sequential(
        [
            keras.Input((6,)),
            keras.layers.Dense(4, use_bias=False, kernel_initializer=small),
            keras.layers.Dense(3, use_bias=False, kernel_initializer=small, dtype="bfloat16"),
            keras.layers.Dense(1, use_bias=False, kernel_initializer=small),
        ]
    )
    model.set_weights([np.round(weight) for weight in model.get_weights()])
    return model


def _whole_numbers() -> dict[str, Any]:
    """Rows of -1, 0 and 1: a step on them makes no number that bfloat16 has to round, in whichever order it adds."""
    rng = np.random.default_rng(0)
    return {
        "x": rng.integers(-1, 2, (8, 6)).astype("float32"),
        "y": rng.integers(-1, 2, (8, 1)).astype("float32"),
        "batch_size": 24,
        "shuffle": False,
    }


def _overflowing_later() -> dict[str, Any]:
    """One batch, in the middle, whose gradient is too large for the loss scale."""
    x = X.copy()
    x[130] *= 1e37
    return {"x": x, "y": LABELS, "batch_size": 24}


CASES: dict[str, Case] = {
    "LossScaleOptimizer": fitting(mlp, classifying(_scaled()), labelled()),
    "LossScaleOptimizer, overflow at the start": fitting(mlp, classifying(_scaled(initial_scale=2.0**126)), labelled()),
    "LossScaleOptimizer, overflow on one replica": fitting(
        lambda: keras.Sequential([keras.Input((8,)), keras.layers.Dense(2)]),
        classifying(_scaled()),
        _overflowing_later,
    ),
    "LossScaleOptimizer and clipnorm": fitting(mlp, classifying(_scaled(inner={"clipnorm": 0.05})), labelled()),
    "LossScaleOptimizer and accumulation": fitting(
        mlp,
        classifying(_scaled(initial_scale=2.0**126, inner={"gradient_accumulation_steps": 2})),
        labelled(),
    ),
    "LossScaleOptimizer and steps_per_execution": fitting(
        mlp, classifying(_scaled(initial_scale=2.0**126), steps_per_execution=4), labelled()
    ),
    "mixed_float16": Case(_under_policy("mixed_float16", normalised), tolerance=_FLOAT16),
    "mixed_float16, jit_compile": Case(_under_policy("mixed_float16", mlp, jit_compile=True), tolerance=_FLOAT16),
    "mixed_bfloat16": Case(_under_policy("mixed_bfloat16", normalised), tolerance=_BFLOAT16),
    "one layer in bfloat16, nothing to round": fitting(
        _with_a_bfloat16_layer,
        lambda: {"optimizer": keras.optimizers.SGD(0.125), "loss": "mse"},
        _whole_numbers,
        epochs=1,
    ),
    "float64": Case(_under_policy("float64", normalised)),
}
