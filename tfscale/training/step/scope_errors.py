"""Does an error of a step mean that something it uses was made in the wrong place, or too late?"""

from tfscale.errors import ModelError

# What TensorFlow says of an optimizer that was made outside of the scope, and that no attribute leads to.
_TWO_STRATEGIES = ("Mixing different tf.distribute.Strategy objects", "Must not nest tf.distribute.Strategy scopes")

# What Keras says of a variable that an optimizer was not built with.
_UNKNOWN = "This optimizer can only be called for the variables it was originally built with"

# What TensorFlow says where Keras would make the generator behind `keras.random` in the midst of an update.
_LATE_GENERATOR = ("Unable to lift tensor", "seed_generator_state")


def misplaced_error(error: Exception, where: str) -> ModelError | None:
    """Returns the error of ours for what a step met that belongs to another strategy, or was made after the optimizer.

    Args:
        error: In what the step ended.
        where: The step or call, such as "`fit` of a Sequential".

    Example:
        >>> from tfscale.training.step.scope_errors import misplaced_error
        >>> error = RuntimeError("Must not nest tf.distribute.Strategy scopes.")
        >>> print(misplaced_error(error, "`fit` of a Sequential").args[0].splitlines()[0])
        What a step updates must be created under the strategy's scope.
        >>> misplaced_error(RuntimeError("anything else"), "`fit` of a Sequential")
    """
    if isinstance(error, ModelError):
        return None
    said = str(error)
    if isinstance(error, ValueError) and _UNKNOWN in said:
        return ModelError(
            "A step met a layer, or made one, that was not there when its optimizer was built.\n"
            f"Received: {said[:200]!r} from Keras, in {where}. A branch of Python "
            "leads to it, by what a batch holds or by its number of rows, of which each replica has a part. Build all "
            "layers before: call the model on a few rows inside `with dp.scope():`, with each branch taken once."
        )
    if all(part in said for part in _LATE_GENERATOR):
        return ModelError(
            "What is drawn where weights are updated needs a generator that is there before.\n"
            f"Received: {said[:200]!r} from TensorFlow, in {where}: `keras.random` without a seed, in a constraint, a "
            "schedule or an optimizer. Give it `seed=generator`, a `keras.random.SeedGenerator` made inside of "
            "`with dp.scope():`."
        )
    if isinstance(error, RuntimeError) and any(part in said for part in _TWO_STRATEGIES):
        return ModelError(
            "What a step updates must be created under the strategy's scope.\n"
            f"Received: {said[:200]!r} from TensorFlow, in {where}. "
            "Create every optimizer and metric, also in lists and inner models, inside `with dp.scope():`."
        )
    return None
