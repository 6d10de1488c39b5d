"""Why is a run most likely different from the reference?

A list of rules over what the runs have left; the first that fits names the cause.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tfscale.parity.outcome import (
    EPOCH_METRICS,
    EVALUATE,
    PREDICT,
    DataFacts,
    ModelFacts,
)


@dataclass(frozen=True)
class Finding:
    """A run that differs, and all that may say why.

    Args:
        num_replicas: Replicas of the run.
        differing: Size of the difference, by quantity, where it is above the tolerance.
        model: Facts about the model in this run.
        data: Facts about the data of the reference.
        same_data: Whether the run saw the reference's data.
        control: Size of the difference by quantity between the reference and a run of plain Keras
            from weights one rounding away; empty when there was no such run.
        in_float64: The largest difference of the same run from the reference, both in float64; None where that was not
            tried, or the script did not run in float64.
        is_rounding: Whether that is so small that the difference in the script's own type is rounding.
    """

    num_replicas: int
    differing: Mapping[str, float]
    model: ModelFacts
    data: DataFacts
    same_data: bool
    control: Mapping[str, float]
    in_float64: float | None = None
    is_rounding: bool = False

    def only(self, *quantities: str) -> bool:
        """Whether nothing but some of `quantities` differs."""
        return set(self.differing) <= set(quantities)


def likeliest_cause(finding: Finding) -> str:
    """Returns a sentence on the likeliest cause for a run through tfscale.

    Example:
        >>> data = DataFacts(global_batch=8, num_steps=2, batches=(8,), digest="")
        >>> finding = Finding(2, {"evaluate": 0.1}, ModelFacts(), data, True, {})
        >>> print(likeliest_cause(finding))
        Training is equal and only metrics differ: a metric of your own whose variables are not ...
    """
    in_float64 = f"{finding.in_float64 or 0.0:.0e}"
    cause = next(sentence for fits, sentence in _RULES if fits(finding)).format(
        random=", ".join(finding.model.random_on),
        steps=" and ".join(finding.model.own_steps),
        in_float64=in_float64,
    )
    if finding.in_float64 is None or finding.is_rounding:
        return cause
    return f"{cause} (This is no rounding: in float64 the same run differs by {in_float64}.)"


def cause_under_keras(finding: Finding) -> str:
    """Returns a sentence on why plain Keras under tf.distribute differs."""
    causes = [sentence for fits, sentence in _KERAS_RULES if fits(finding)]
    if not causes:
        causes = ["each replica divides its loss by its own counts, or draws the same randomness"]
    return "; ".join(causes) + "."


def _may_be_rounding(finding: Finding) -> bool:
    """Whether plain Keras, from weights one rounding away, ends about as far; float64 would say more, where it runs."""
    return bool(finding.in_float64 is None and finding.control) and all(
        finding.control.get(quantity, 0.0) >= size / 10 for quantity, size in finding.differing.items()
    )


Rule = tuple[Callable[[Finding], bool], str]

_RULES: tuple[Rule, ...] = (
    (
        lambda finding: not finding.same_data,
        "`data` gave this run other examples, or the same in another order: seed every shuffle and "
        "generator in it (`verify` seeds Python, NumPy and Keras, not `np.random.default_rng()`), "
        "and leave out what depends on time or on threads.",
    ),
    (
        lambda finding: finding.is_rounding,
        "Float rounding that training amplifies: in float64 the same runs agree to {in_float64}, so tfscale "
        "computes what one device does. (The usual amplifiers are a ReLU, a maximum or a division near a tie, which "
        "the order of a sum decides: rows in another order do the same to plain Keras; and Adam or the like on a bias "
        "in front of BatchNormalization, whose gradient is nothing but rounding: use_bias=False removes it.)",
    ),
    (
        _may_be_rounding,
        "Float rounding that training amplifies: plain Keras on one device, started from weights "
        "one rounding away, ends as far from the reference. (The usual amplifier is Adam or the "
        "like on a bias in front of BatchNormalization, whose gradient is nothing but rounding.) So "
        "nothing is shown either way, and the script did not run in float64 when `verify` asked for it: let it say no "
        "types of its own (keras.config.set_floatx, dtype=, tf.float32), or let `data` give fewer examples, which "
        "leave rounding fewer steps to grow in.",
    ),
    (
        lambda finding: finding.model.averages_micro_steps,
        "`use_ema` with `gradient_accumulation_steps`: plain Keras moves the average on every micro-step, "
        "though the weights did not move; tfscale moves it once per update, on one replica too. Compare "
        "without one of the two.",
    ),
    (
        lambda finding: bool(finding.model.random_on),
        "These layers draw random numbers and could not be switched off: {random}. Each replica "
        "draws a stream of its own, so they cannot equal one replica's; let `build` leave them out "
        "for the comparison.",
    ),
    (
        lambda finding: finding.only(EPOCH_METRICS, EVALUATE) and bool(finding.model.own_steps),
        "Training is equal and only metrics differ: the model's own {steps} logs a value that is "
        "no mean over its examples, or updates a metric whose variables are not sums.",
    ),
    (
        lambda finding: finding.only(EPOCH_METRICS, EVALUATE),
        "Training is equal and only metrics differ: a metric of your own whose variables are not "
        "sums over examples (the replicas' variables are added up), or one that needs the whole "
        "batch at once.",
    ),
    (
        lambda finding: bool(finding.model.own_steps),
        "The model's own {steps} computes a loss that is no mean over its examples, such as a sum, "
        "a division by a fixed number or by a count of another kind, or changes variables itself: "
        "each replica sees its own rows only, and its gradients are weighted by their number. Ways out: "
        "tfscale.gather_rows(x) where rows meet, tfscale.sum_over_examples(loss) around a sum, "
        "tfscale.sum_gradients(gradients) between the tape and the optimizer.",
    ),
    (
        lambda finding: finding.only(PREDICT),
        "Only predictions differ: a layer or predict_step that mixes the examples of a batch.",
    ),
    (
        lambda finding: bool(finding.model.num_added_losses),
        "An add_loss term that is neither a sum nor a mean over the examples of a batch.",
    ),
    (
        lambda finding: True,
        "Code that mixes the examples of a batch (statistics of its own, in-batch negatives, a loss "
        "over pairs) sees the rows of one replica only: compute it of tfscale.gather_rows(x). And random "
        "numbers outside of Keras layers differ per replica. If the model has neither, this is a mistake "
        "in tfscale: please report it with this table.",
    ),
)

_KERAS_RULES: tuple[Rule, ...] = (
    (
        lambda finding: not finding.data.splits_evenly(finding.num_replicas),
        "a batch does not split evenly, and every replica's mean counts the same",
    ),
    (
        lambda finding: finding.model.clips,
        "gradients are clipped before they are added up",
    ),
    (
        lambda finding: bool(finding.model.batch_norm),
        "BatchNormalization sees the rows of one replica, and replica 0's statistics are kept",
    ),
    (
        lambda finding: bool(finding.model.num_added_losses),
        "add_loss terms are divided by the number of replicas",
    ),
    (
        lambda finding: bool(finding.model.own_steps),
        "the model's own steps are not told which part of the batch they see",
    ),
)
