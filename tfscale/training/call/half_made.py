"""What was being built when a call was interrupted?

Keras says that an optimizer is built before it has its slots, and a layer that is built once more has its weights
twice. So what Ctrl-C has left half built is refused by name.
"""

from __future__ import annotations

import contextlib
import traceback
import weakref
from collections.abc import Iterator

import keras

from tfscale.errors import ModelError
from tfscale.framework.models import flat_layers
from tfscale.gradients.updaters import held_optimizers, innermost, updaters_of

# And by what it was interrupted.
_HALF_MADE: weakref.WeakKeyDictionary[keras.Layer | keras.optimizers.Optimizer, str] = weakref.WeakKeyDictionary()


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
            is_part = isinstance(owner, keras.Layer) and not isinstance(owner, keras.Model)
            if is_part or isinstance(owner, keras.optimizers.Optimizer):
                _HALF_MADE[owner] = type(error).__name__
        raise


def refuse_half_made(model: keras.Model) -> None:
    """Refuses a model of which something is half built.

    Raises:
        ModelError: Naming it.
    """
    if not _HALF_MADE:
        return
    held = held_optimizers(model)
    optimizers = [part for each in held for part in (each, innermost(each), *updaters_of(each))]
    for part in (*flat_layers(model), *optimizers):
        if part in _HALF_MADE:
            is_layer = isinstance(part, keras.Layer)
            way_out = "Make the model anew" if is_layer else "Call `compile` again, with a new optimizer"
            raise ModelError(
                "What was interrupted while it was built must be made anew.\n"
                f"Received: the {'layer' if is_layer else 'optimizer'} {part.name!r} of model {model.name!r}, half "
                f"built when {_HALF_MADE[part]} came. {way_out}."
            )
