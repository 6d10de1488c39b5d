"""What does an optimizer's config become when the batch grows?"""

from __future__ import annotations

import numbers
import warnings
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from typing import Any, NamedTuple

from tfscale.errors import ScalingError
from tfscale.scaling import laws
from tfscale.scaling.knob import NOT_UNDERSTOOD, UNCHANGED, ScaledKnob
from tfscale.scaling.laws import Growth, check_adam_beta_1
from tfscale.scaling.optimizer_table import (
    BASE_KNOBS,
    BASE_SWITCHES,
    ONLY_WITH_EMA,
    OPTIMIZERS,
    SQRT,
    OptimizerLaws,
    find_optimizer,
)
from tfscale.scaling.ratio import check_ratio, exact_fraction, is_number, plain, show
from tfscale.scaling.rules import AdaScaleRule, ScalingRule, rate_factor, resolve_rule
from tfscale.scaling.schedule_config import copy_config, is_object, refuse_compensated, schedule_knobs, wrap_schedule

# Of a class that is not known: the smaller of the two published factors, and none of its own knobs.
_UNKNOWN = OptimizerLaws(lambda knobs: SQRT, {})


class ScaledHyperparameters(NamedTuple):
    """An optimizer's config for the new batch, and how it came about."""

    config: dict[str, Any]
    """As `keras.optimizers.deserialize` takes it; marked with its `batch_ratio`, so that it is not re-derived twice."""
    knobs: tuple[ScaledKnob, ...]
    """One row per hyper-parameter that has an effect, the unchanged ones too."""


class _Request(NamedTuple):
    ratio: Fraction
    rule: Any
    warmup_steps: Callable[[ScalingRule], Fraction]
    like: str | None
    adam_beta_1: str


def scale_hyperparameters(
    optimizer_config: Mapping[str, Any],
    ratio: Any,
    *,
    rule: Any = "auto",
    warmup_steps: Any = 0,
    like: str | None = None,
    adam_beta_1: str = "keep",
) -> ScaledHyperparameters:
    """Re-derives every hyper-parameter of a Keras optimizer for a batch that is r times larger.

    The rate gets the rule's factor f; what is counted in steps, or depends on the noise in a batch, follows from r and
    f: `m^r` for a decay per step (beta_2, rho, `ema_momentum`), `/ sqrt(r)` or `/ r` for an epsilon outside or inside
    the root, `x r / f` for weight decay as Keras applies it (`w -= w * wd * lr`), `/ r` for step counts. Momentum, and
    beta_1 of Adam and its kin, are kept. Which law holds for which knob of which class is in `optimizer_table.py`. A
    rate that is a schedule, or that warms up, becomes the config of a `ReplicaSchedule` around it; a constant rate
    stays a number. At ratio 1 nothing changes at all. The law for r and then that for s is the law for r s, except
    where a whole number of steps had to be rounded.

    Args:
        optimizer_config: As `keras.optimizers.serialize` returns it, or `{"class_name": "Adam", "config":
            opt.get_config()}`. Knobs absent from a shorter one have Keras's defaults. It is not modified.
            `LossScaleOptimizer` and `MultiOptimizer` are looked into.
        ratio: r, the batch ratio: global batch / reference batch; above 0.
        rule: `"auto"` (by optimizer), `"linear"`, `"sqrt"`, `"none"`, `"adascale"` (SGD only; the rate stays, for its
            factor is measured in training), a `ScalingRule`, a function from r to f, or f.
        warmup_steps: Steps of the reference run over which the rate rises from the reference's; 0 for none. Or a
            function from the rule that is used to them.
        like: For an optimizer class of one's own: the Keras class whose knobs and rule it shares.
        adam_beta_1: `"keep"`, or `"memory"` for beta_1^r, in Adam and its kin (Muon's Adam part too).

    Returns:
        The new config and one row per knob.

    Raises:
        ScalingError: When an argument is not as above, a knob has an impossible value or would get one, or the config
            was re-derived before.

    Warns:
        UserWarning: When a knob is not understood: it is left as it is.

    Reference:
        Goyal et al. 2017, arXiv:1706.02677; Malladi et al. 2022, arXiv:2205.10287; Busbridge et al. 2023,
        arXiv:2307.13813.

    Example:
        >>> from tfscale import scale_hyperparameters
        >>> adam = {"class_name": "Adam", "config": {"learning_rate": 0.001, "beta_1": 0.9}}
        >>> config, knobs = scale_hyperparameters(adam, 4)
        >>> config["config"]["learning_rate"], config["config"]["beta_1"], round(config["config"]["beta_2"], 4)
        (0.002, 0.9, 0.996)
        >>> [(knob.name, knob.rule) for knob in knobs]
        [('learning_rate', 'x sqrt(r)'), ('beta_1', 'kept'), ('beta_2', 'm^r'), ('epsilon', '/ sqrt(r)')]
    """
    _check_config(optimizer_config)
    request = _Request(check_ratio(ratio), rule, _warmup(warmup_steps), like, check_adam_beta_1(adam_beta_1))
    resolve_rule(rule, auto=SQRT)
    if like is not None and find_optimizer(like) is None:
        raise ScalingError(
            f"`like` must be the name of an optimizer of Keras.\n"
            f"Received: like={like!r}. Use one of {', '.join(OPTIMIZERS)}."
        )
    refuse_compensated(optimizer_config)
    config, rows = _scale_object(copy_config(optimizer_config), request, "")
    unknown = [row.name for row in rows if not row.is_understood]
    if unknown and request.ratio != 1:
        warnings.warn(
            f"Not understood, and so left as they are for the larger batch: {', '.join(unknown)}. "
            "Set them yourself, or say with like='Adam' which optimizer of Keras this one is like.",
            stacklevel=2,
        )
    if request.ratio == 1:
        return ScaledHyperparameters(copy_config(optimizer_config), tuple(map(_left_alone, rows)))
    return ScaledHyperparameters(config, rows)


def _left_alone(row: ScaledKnob) -> ScaledKnob:
    reason = "batch_ratio is 1: the batch is the reference batch, and nothing changes"
    return ScaledKnob(row.name, row.unit, row.old, row.old, UNCHANGED, reason)


def _check_config(config: Any) -> None:
    if not is_object(config if not isinstance(config, Mapping) else dict(config)):
        received = f"keys {sorted(map(str, config))}" if isinstance(config, Mapping) else repr(config)
        raise ScalingError(
            "`optimizer_config` must have the form {'class_name': ..., 'config': {...}}.\n"
            f"Received: {received}. Pass keras.optimizers.serialize(optimizer)."
        )


def _warmup(steps: Any) -> Callable[[ScalingRule], Fraction]:
    if callable(steps):
        return lambda rule: _check_warmup_steps(steps(rule))
    count = _check_warmup_steps(steps)
    return lambda rule: count


def _check_warmup_steps(steps: Any) -> Fraction:
    if not is_number(steps) or steps < 0:
        raise ScalingError(
            "`warmup_steps` must be a number of steps of the reference run, 0 or more.\n"
            f"Received: warmup_steps={show(steps)}. Use 0 for no warm-up."
        )
    return exact_fraction(steps)


def _scale_object(
    config: dict[str, Any], request: _Request, path: str
) -> tuple[dict[str, Any], tuple[ScaledKnob, ...]]:
    """Scales a serialised optimizer, in place, and those inside it."""
    inside = config["config"]
    if config["class_name"].lower() == "lossscaleoptimizer":
        rows = _scale_loss_scale(inside, request, path)
    elif config["class_name"].lower() == "multioptimizer":
        rows = _scale_parts(inside, request, path)
    else:
        rows = _scale_optimizer(config, request, path)
    config["batch_ratio"] = plain(request.ratio)
    return config, tuple(rows)


def _scale_loss_scale(inside: dict[str, Any], request: _Request, path: str) -> Iterator[ScaledKnob]:
    if is_object(inside.get("inner_optimizer")):
        inside["inner_optimizer"], rows = _scale_object(inside["inner_optimizer"], request, f"{path}inner_optimizer.")
        yield from rows
    else:
        yield _not_understood(f"{path}inner_optimizer", inside.get("inner_optimizer"), "its config is not in this one")
    growth = Growth(request.ratio, 1.0, SQRT, {})
    for name, default, law in (
        ("initial_scale", 2.0**15, laws.LOSS_SCALE),
        ("dynamic_growth_steps", 2000, laws.WHOLE),
    ):
        yield _scale_knob(inside, name, inside.get(name, default), law, growth, path)


def _scale_parts(inside: dict[str, Any], request: _Request, path: str) -> Iterator[ScaledKnob]:
    choice: Any = inside.get("optimizer_map")
    parts = choice["config"] if is_object(choice) else {}
    if not is_object(parts.get("default_optimizer")):
        yield _not_understood(
            f"{path}optimizer_map", choice, "a function that chooses optimizers cannot be looked into"
        )
        return
    parts["default_optimizer"], rows = _scale_object(parts["default_optimizer"], request, f"{path}default_optimizer.")
    yield from rows
    for pattern, part in (parts.get("optimizer_map") or {}).items():
        parts["optimizer_map"][pattern], rows = _scale_object(part, request, f"{path}optimizer_map[{pattern!r}].")
        yield from rows


def _find_laws(config: dict[str, Any], request: _Request) -> tuple[OptimizerLaws, bool]:
    """Returns the laws of an optimizer's class, and whether the class is known."""
    # A class of one's own may bear the name of one of Keras's; its module tells.
    ours = str(config.get("module") or "keras").partition(".")[0] == "keras"
    name = find_optimizer(config["class_name"]) if ours else None
    if name is None and request.like is not None:
        name = find_optimizer(request.like)
    return (_UNKNOWN, False) if name is None else (OPTIMIZERS[name], True)


def _scale_optimizer(config: dict[str, Any], request: _Request, path: str) -> Iterator[ScaledKnob]:
    inside = config["config"]
    known_laws, known = _find_laws(config, request)
    table = {**known_laws.knobs, **BASE_KNOBS}
    # A config that Keras wrote is complete: what it lacks, this release of Keras has not got.
    if BASE_KNOBS.keys() <= inside.keys():
        table = {name: entry for name, entry in table.items() if name in inside}
    defaults = {name: default for name, (default, _) in table.items()} | dict(known_laws.base)
    knobs = {**defaults, **inside}
    rule = resolve_rule(request.rule, auto=known_laws.rule(knobs))
    if isinstance(rule, AdaScaleRule):
        factor = _check_adascale(config["class_name"] if known else None, rule, request)
    else:
        factor = rate_factor(rule, float(request.ratio))
    growth = Growth(request.ratio, factor, rule, knobs)
    yield from _scale_rate(inside, knobs.get("learning_rate", known_laws.learning_rate), growth, request, path, known)
    for name, (_, law) in table.items():
        inert = name in ONLY_WITH_EMA and not inside.get("use_ema")
        if law is laws.ADAM_BETA_1["keep"]:
            law = laws.ADAM_BETA_1[request.adam_beta_1]
        if knobs[name] is not None and not inert:
            yield _scale_knob(inside, name, knobs[name], law, growth, path)
    for name, (value, reason) in known_laws.built_in.items():
        yield ScaledKnob(f"{path}{name}", "", value, value, UNCHANGED, reason)
    for name in inside.keys() - table.keys() - BASE_SWITCHES - known_laws.switches - {"learning_rate"}:
        yield _not_understood(
            f"{path}{name}", inside[name], f"{config['class_name']} has it, and tfscale does not know it"
        )


def _check_adascale(class_name: str | None, rule: AdaScaleRule, request: _Request) -> float:
    """Returns the factor for what follows from the rate: decay per step of the reference run, as the rate, stays."""
    if class_name is None or find_optimizer(class_name) != "SGD":
        raise ScalingError(
            "Rule 'adascale' is for SGD: it was derived for steps proportional to the gradient.\n"
            f"Received: {class_name or 'an optimizer class that is not known'}. "
            "Use keras.optimizers.SGD, or rule='auto'."
        )
    if request.warmup_steps(rule):
        raise ScalingError(
            "Rule 'adascale' needs no warm-up: its gain is small by itself where the linear rule would break.\n"
            f"Received: a warm-up over {plain(request.warmup_steps(rule)):g} reference steps. Leave it out."
        )
    return rule(float(request.ratio))


_FORMULAS = {"linear": "x r", "sqrt": "x sqrt(r)", "none": UNCHANGED}


def _scale_rate(
    inside: dict[str, Any], rate: Any, growth: Growth, request: _Request, path: str, known: bool
) -> Iterator[ScaledKnob]:
    name = f"{path}learning_rate"
    if isinstance(growth.rule, AdaScaleRule):
        shown = rate["class_name"] if is_object(rate) else rate
        reason = f"rule 'adascale' ({growth.rule.source}): a gain from 1 to {growth.factor:.6g}, measured at every step"
        yield ScaledKnob(name, "per step", shown, shown, "x gain", f"{reason}; a schedule advances by it")
        return
    formula = _FORMULAS.get(growth.rule.name, "x f")
    warmup_steps = request.warmup_steps(growth.rule)
    source = (
        growth.rule.source if known else f"{growth.rule.source}; the class is not known, the smaller factor is taken"
    )
    warmup = f", after a warm-up over {plain(warmup_steps):g} reference steps" if warmup_steps else ""
    reason = f"rule {growth.rule.name!r} ({source}), f = {growth.factor:.6g}{warmup}"
    if is_object(rate):
        inside["learning_rate"] = wrap_schedule(rate, growth, warmup_steps)
        new = f"{growth.factor:.6g} * {rate['class_name']}(step * {plain(request.ratio):.6g})"
        yield ScaledKnob(name, "per step", rate["class_name"], new, "f s(step r)", reason)
        yield from schedule_knobs(name, rate, growth)
    elif isinstance(rate, numbers.Real) and not isinstance(rate, bool):
        new_rate, _ = laws.RATE.scale(name, float(rate), growth)
        warms_up = warmup_steps > 0 and growth.factor != 1
        inside["learning_rate"] = wrap_schedule(rate, growth, warmup_steps) if warms_up else new_rate
        yield ScaledKnob(name, "per step", rate, new_rate, formula, reason)
    else:
        yield _not_understood(name, rate, "neither a number nor the config of a schedule of steps")


def _scale_knob(inside: dict[str, Any], name: str, old: Any, law: laws.Law, growth: Growth, path: str) -> ScaledKnob:
    new, remark = law.scale(name, old, growth)
    if name in inside or new != old:
        inside[name] = new
    return ScaledKnob(
        f"{path}{name}", law.unit, old, new, law.formula, f"{law.reason}; {remark}" if remark else law.reason
    )


def _not_understood(name: str, value: Any, reason: str) -> ScaledKnob:
    return ScaledKnob(name, "", value, value, NOT_UNDERSTOOD, reason)
