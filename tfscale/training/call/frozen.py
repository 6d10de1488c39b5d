"""Was a layer frozen since a model's training was traced?

In Keras that counts from the next `compile` on. Whoever traces the step anew without one would have it count at once.
"""

from __future__ import annotations

import keras

from tfscale.errors import ModelError
from tfscale.framework.models import runs_eagerly
from tfscale.replicas.owners import Fact, PreparedModel

# Of the weights that there were when the train function was made, by identity: whether each is trained.
TRAINED = Fact[dict[int, bool]](
    PreparedModel, "trained", lambda weights: f"{sum(weights.values())} of {len(weights)} weights"
)


def note_trained(model: keras.Model) -> None:
    """Is called when the train function is made."""
    TRAINED.set(model, _trained(model))


def forget_functions(model: keras.Model) -> None:
    """Has Keras make the functions of a model anew: those that there are belong to another way to run its steps.

    Raises:
        ModelError: When layers were frozen, or no longer are, since the train function was made.
    """
    if model.train_function is not None and not runs_eagerly(model):
        before, now = TRAINED.of(model, {}), _trained(model)
        changed = [each.path for each in model.weights if before.get(id(each), now[id(each)]) != now[id(each)]]
        if changed:
            raise ModelError(
                "What is frozen was changed since the last `compile`, and `dp.prepare` was called with other choices: "
                "Keras trains on as compiled, which cannot be told any more.\n"
                f"Received: model {model.name!r}, and {', '.join(map(repr, changed[:3]))}. "
                "Call `compile` again, from where on the change counts, or prepare the model before its first `fit`."
            )
    model.train_function = model.test_function = model.predict_function = None


def _trained(model: keras.Model) -> dict[int, bool]:
    trained = set(map(id, model.trainable_variables))
    return {id(weight): id(weight) in trained for weight in model.weights}
