"""What was being built when a call was interrupted?

Keras says that an optimizer is built before it has its slots, and a layer that is built once more has its weights
twice. So what Ctrl-C has left half built is refused by name.
"""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Iterator

import keras

from tfscale.errors import ModelError
from tfscale.framework.models import flat_layers
from tfscale.gradients.route import GradientRoute
from tfscale.gradients.updaters import held_optimizers, updaters_of
from tfscale.replicas.owners import Fact, PreparedModel

# By what it was interrupted.
HALF_MADE_LAYER = Fact[str](PreparedModel, "half_made")
HALF_MADE_OPTIMIZER = Fact[str](GradientRoute, "half_made")


@contextlib.contextmanager
def noting_half_made() -> Iterator[None]:
    """Notes the layers and optimizers whose `build` is left by what is no `Exception`, such as `KeyboardInterrupt`."""
    try:
        yield
    except Exception:
        # Keras's build from shapes fails now and then, and is tried in another way.
        raise
    except BaseException as error:
        for frame, _ in traceback.walk_tb(error.__traceback__):
            owner = frame.f_locals.get("self") if frame.f_code.co_name == "build" else None
            if isinstance(owner, keras.Layer) and not isinstance(owner, keras.Model):
                HALF_MADE_LAYER.set(owner, type(error).__name__)
            elif isinstance(owner, keras.optimizers.Optimizer):
                HALF_MADE_OPTIMIZER.set(owner, type(error).__name__)
        raise


def refuse_half_made(model: keras.Model) -> None:
    """Refuses a model of which something is half built.

    Raises:
        ModelError: Naming it.
    """
    if not (HALF_MADE_LAYER.everywhere() or HALF_MADE_OPTIMIZER.everywhere()):
        return
    held = held_optimizers(model)
    optimizers = [part for each in held for part in (each, *updaters_of(each))]
    for part in (*flat_layers(model), *optimizers):
        is_layer = isinstance(part, keras.Layer)
        interrupted_by = (HALF_MADE_LAYER if is_layer else HALF_MADE_OPTIMIZER).of(part)
        if interrupted_by is not None:
            way_out = "Make the model anew" if is_layer else "Call `compile` again, with a new optimizer"
            raise ModelError(
                "What was interrupted while it was built must be made anew.\n"
                f"Received: the {'layer' if is_layer else 'optimizer'} {part.name!r} of model {model.name!r}, half "
                f"built when {interrupted_by} came. {way_out}."
            )
