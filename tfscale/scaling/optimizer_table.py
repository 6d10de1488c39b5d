"""Which knobs does each Keras optimizer have, and which law holds for each?

Read off `update_step` of each class (Keras 3.12 to 3.15), under one assumption: noise dominates the gradient of a
batch, so that its root mean square shrinks by sqrt(r). SGD, RMSprop, Adam and Lamb follow papers. The others are ours,
each derived the same way, and most checked on a noisy quadratic (`tests/scaling`):

- Adam's beta_1, and that of what is like Adam, is kept, as momentum is: beta_1^r, which follows where noise dominates
  (Malladi 2022), gives away the larger critical batch that momentum buys. `adam_beta_1="memory"` asks for it.
- Nadam, Adamax, Adafactor: by analogy with Adam. Adamax divides by a decayed maximum; over r times fewer steps it would
  be smaller than sqrt(r) says, so its beta_2 stays. Adafactor's cap on the rate, 1 / sqrt(step), grows by sqrt(r) by
  itself. Its beta_2 = 1 - step^-0.8 remembers r^0.2 times more examples; no exponent would mend that.
- Adagrad divides by the root of a *sum*: T / r steps with squares 1/r as large make it r^2 smaller, the step r times
  larger. The rate stays.
- Ftrl divides by sum^-p, p = `learning_rate_power`: rate x r^(1 + 2 p), which is unchanged at the usual p = -1/2; what
  stands beside the sum of gradients (l1) or the denominator (l2, beta) shrinks by r.
- Adadelta finds its own step from rho and epsilon, which set each other's effect: both stay, the rate gets sqrt(r).
- Lion, Lamb, Muon divide the update by its own size. An average with beta^r would be as noisy as before, and the step
  would not grow by sqrt(r) unasked. So Lamb and Muon keep the average (as the Lamb paper does), and it becomes sqrt(r)
  less noisy; Lion, whose average is long, keeps the weight of each *example* and gets the rate that this asks for.
- ScheduleFreeAdamW: beta_1 is a place between two points, not a memory, and its average runs over all steps: no unit.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from tfscale.errors import ScalingError
from tfscale.scaling import laws
from tfscale.scaling.laws import Law
from tfscale.scaling.rules import LinearRule, NoRule, PowerRule, ScalingRule, SqrtRule

LINEAR, SQRT, NONE = LinearRule(), SqrtRule(), NoRule()


@dataclass(frozen=True)
class LionRule(ScalingRule):
    """Lion's rate: `factor = sqrt(r K(b1', b2') / K(b1, b2))`, with b1' = b1 b2^(r-1), b2' = b2^r.

    Lion moves by the sign of c = b1 m + (1 - b1) g, with m an average of gradients with decay b2. The new betas give to
    each example in c the weight it had, to within a block of r batches. The noise of c then changes by
    sqrt(K' / (r K)), where K(b1, b2) = (1 - b1)^2 + b1^2 (1 - b2) / (1 + b2); its sign is worth as much less, and r
    steps became one. Between sqrt(r), without momentum, and r, with much of it: 5.55 at r = 8 for the default betas.

    Source: ours, for Chen et al. 2023, arXiv:2302.06675; no published rule is known to us.

    Args:
        beta_1: The weight of the average in the update.
        beta_2: The average's decay per step.
    """

    beta_1: float
    beta_2: float
    name: ClassVar[str] = "lion"
    source: ClassVar[str] = "derived for Chen et al. 2023, arXiv:2302.06675"
    shown_up_to: ClassVar[float | None] = 8.0
    shown_by: ClassVar[str] = "the noisy quadratic in the tests of tfscale"

    def __post_init__(self) -> None:
        betas = (self.beta_1, self.beta_2)
        if not all(isinstance(beta, numbers.Real) and 0 <= beta < 1 for beta in betas):
            raise ScalingError(
                "The betas of Lion must be numbers from 0 up to, but not including, 1.\n"
                f"Received: beta_1={self.beta_1!r}, beta_2={self.beta_2!r}. Correct them in the optimizer."
            )

    def __call__(self, ratio: float) -> float:
        """Returns the factor."""
        if ratio == 1:
            return 1.0
        new = self._noise(self.beta_1 * self.beta_2 ** (ratio - 1), self.beta_2**ratio)
        return math.sqrt(ratio * new / self._noise(self.beta_1, self.beta_2))

    @staticmethod
    def _noise(beta_1: float, beta_2: float) -> float:
        return (1 - beta_1) ** 2 + beta_1**2 * (1 - beta_2) / (1 + beta_2)


@dataclass(frozen=True)
class OptimizerLaws:
    """What is known about one optimizer class.

    Args:
        rule: What `rule="auto"` means for it, from the values of its knobs.
        knobs: Its own knobs, by name: the default in Keras, and the law.
        learning_rate: The default in Keras.
        switches: Its arguments that are no quantities.
        base: Defaults of knobs that every optimizer has, where they differ.
        built_in: What Keras fixes in code though it counts steps, by name: the value, and what that means.
        by_analogy: Whether its rule is not from a paper about it.
    """

    rule: Callable[[Mapping[str, Any]], ScalingRule]
    knobs: Mapping[str, tuple[Any, Law]]
    learning_rate: float = 0.001
    switches: frozenset[str] = frozenset()
    base: Mapping[str, Any] = field(default_factory=dict)
    built_in: Mapping[str, tuple[Any, str]] = field(default_factory=dict)
    by_analogy: bool = False


# The arguments of keras.optimizers.Optimizer; each is None or off by default, and then has no effect.
BASE_KNOBS: dict[str, tuple[Any, Law]] = {
    "weight_decay": (None, laws.DECAY),
    "clipnorm": (None, laws.CLIPPING),
    "global_clipnorm": (None, laws.CLIPPING),
    "clipvalue": (None, laws.CLIPPING),
    "ema_momentum": (0.99, laws.MEMORY),
    "ema_overwrite_frequency": (None, laws.WHOLE),
    "loss_scale_factor": (None, laws.LOSS_SCALE),
    "gradient_accumulation_steps": (None, laws.MICRO_STEPS),
}
ONLY_WITH_EMA = frozenset({"ema_momentum", "ema_overwrite_frequency"})
BASE_SWITCHES = frozenset({"name", "use_ema"})


def _adam(beta_2: float = 0.999, epsilon: float = 1e-7) -> dict[str, tuple[Any, Law]]:
    return {
        "beta_1": (0.9, laws.ADAM_BETA_1["keep"]),
        "beta_2": (beta_2, laws.MEMORY),
        "epsilon": (epsilon, laws.EPSILON_OUTSIDE),
    }


_MAXIMUM = laws.OWN_SIZE.because("of a maximum over steps, not an average: kept, it shrinks by sqrt(r)")
_AMSGRAD = frozenset({"amsgrad"})
_FTRL = {
    "learning_rate_power": (-0.5, laws.WEIGHTS.because("an exponent")),
    "initial_accumulator_value": (0.1, laws.SUM_OF_SQUARES),
    "l1_regularization_strength": (0.0, laws.PER_GRADIENT),
    "l2_regularization_strength": (0.0, laws.PER_GRADIENT),
    "l2_shrinkage_regularization_strength": (0.0, laws.WEIGHTS.because("part of every gradient, as L2 in the loss")),
    "beta": (0.0, laws.FTRL_BETA),
}
_MUON = {
    "momentum": (0.95, laws.OWN_SIZE),
    "adam_beta_1": (0.9, laws.ADAM_BETA_1["keep"]),
    "adam_beta_2": (0.999, laws.MEMORY),
    "epsilon": (1e-7, laws.EPSILON_OUTSIDE),
    "adam_weight_decay": (0.004, laws.DECAY),
    "adam_lr_ratio": (1, laws.WEIGHTS.because("a ratio of two rates that grow alike")),
    "rms_rate": (0.2, laws.WEIGHTS),
    **{name: (value, laws.PER_MATRIX) for name, value in (("muon_a", 3.4445), ("muon_b", -4.775), ("muon_c", 2.0315))},
    "ns_steps": (5, laws.PER_MATRIX),
}
_ADAFACTOR = {
    "beta_2_decay": (-0.8, laws.WEIGHTS.because("an exponent: the memory in examples grows by r^(1 + beta_2_decay)")),
    "epsilon_1": (1e-30, laws.EPSILON_INSIDE),
    "epsilon_2": (1e-3, laws.WEIGHTS),
    "clip_threshold": (1.0, laws.WEIGHTS),
    "relative_step": (True, laws.WEIGHTS.because("the cap 1 / sqrt(step) grows by sqrt(r) by itself")),
}
_RMSPROP = {
    "rho": (0.9, laws.MEMORY),
    "momentum": (0.0, laws.MOMENTUM.because("a sum of updates, as in SGD: kept, the rate makes up for it")),
    "epsilon": (1e-7, laws.EPSILON_INSIDE),
}
_ADADELTA = {
    "rho": (0.95, laws.WEIGHTS.because("rho and epsilon set the step together: kept, as epsilon must be")),
    "epsilon": (1e-7, laws.WEIGHTS.because("under the root above and below the line; above, it sets the step")),
}

OPTIMIZERS: dict[str, OptimizerLaws] = {
    "SGD": OptimizerLaws(
        lambda knobs: LINEAR, {"momentum": (0.0, laws.MOMENTUM)}, learning_rate=0.01, switches=frozenset({"nesterov"})
    ),
    "Adam": OptimizerLaws(lambda knobs: SQRT, _adam(), switches=_AMSGRAD),
    "AdamW": OptimizerLaws(lambda knobs: SQRT, _adam(), switches=_AMSGRAD, base={"weight_decay": 0.004}),
    "Nadam": OptimizerLaws(
        lambda knobs: SQRT,
        _adam(),
        built_in={
            "momentum schedule 0.96^step": (0.96, "written into Keras: it settles r times later, after 100 steps")
        },
        by_analogy=True,
    ),
    "Adamax": OptimizerLaws(lambda knobs: SQRT, _adam() | {"beta_2": (0.999, _MAXIMUM)}, by_analogy=True),
    "RMSprop": OptimizerLaws(lambda knobs: SQRT, _RMSPROP, switches=frozenset({"centered"})),
    "Adagrad": OptimizerLaws(
        lambda knobs: NONE,
        {"initial_accumulator_value": (0.1, laws.SUM_OF_SQUARES), "epsilon": (1e-7, laws.SUM_OF_SQUARES)},
        by_analogy=True,
    ),
    "Adadelta": OptimizerLaws(lambda knobs: SQRT, _ADADELTA, by_analogy=True),
    "Adafactor": OptimizerLaws(lambda knobs: SQRT, _ADAFACTOR, by_analogy=True),
    "Ftrl": OptimizerLaws(lambda knobs: _ftrl_rule(knobs["learning_rate_power"]), _FTRL, by_analogy=True),
    "Lamb": OptimizerLaws(lambda knobs: SQRT, _adam() | {"beta_1": (0.9, laws.OWN_SIZE)}),
    "Lion": OptimizerLaws(
        lambda knobs: LionRule(knobs["beta_1"], knobs["beta_2"]),
        {"beta_1": (0.9, laws.LION_BETA_1), "beta_2": (0.99, laws.MEMORY)},
        by_analogy=True,
    ),
    "Muon": OptimizerLaws(
        lambda knobs: SQRT,
        _MUON,
        switches=frozenset({"exclude_layers", "exclude_embeddings", "nesterov"}),
        base={"weight_decay": 0.004},
        by_analogy=True,
    ),
    "ScheduleFreeAdamW": OptimizerLaws(
        lambda knobs: SQRT,
        _adam(epsilon=1e-8)
        | {"beta_1": (0.9, laws.WEIGHTS.because("a place between two points")), "warmup_steps": (0, laws.EXACT)},
        learning_rate=0.0025,
        by_analogy=True,
    ),
}


def _ftrl_rule(power: Any) -> ScalingRule:
    if not isinstance(power, numbers.Real) or not power <= 0:
        raise ScalingError(
            "`learning_rate_power` must be a number, 0 or less.\n"
            f"Received: learning_rate_power={power!r}. Correct it in the optimizer; Keras's default is -0.5."
        )
    return NONE if power == -0.5 else PowerRule(1 + 2 * float(power))


def find_optimizer(class_name: str) -> str | None:
    """Returns the class's name as Keras spells it, whatever the case; None when there is none.

    Example:
        >>> find_optimizer("adamw"), find_optimizer("MyOptimizer")
        ('AdamW', None)
    """
    return next((name for name in OPTIMIZERS if name.lower() == class_name.lower()), None)
