"""A noisy quadratic, and the update of each optimizer in numpy, as Keras writes it.

Loss h w^2 / 2 in many independent coordinates; the gradient of a batch of r reference batches is
h w + sigma / sqrt(r) z, with z standard normal.
"""

import numpy as np

COORDINATES = 3000
CURVATURE = 1.0
SIGMA = 30.0


def run(step, knobs, *, ratio=1, steps=2000, epochs=8, sigma=SIGMA, average=None, rate=None, start=1.0):
    """Returns (mean, spread) of the weights after each epoch.

    Args:
        step: From (weights, gradient, number of the step from 1, rate, knobs, state) to the new weights.
        knobs: The optimizer's, with "learning_rate".
        ratio: Reference batches in a step; there are 1/ratio as many steps.
        steps: Of the reference run.
        average: The decay of an average of the weights, to look at in their place.
        rate: From the number of the step from 0 to the rate; the constant one of the knobs by default.
    """
    rng = np.random.default_rng(0)
    weights, state, mean, seen = np.full(COORDINATES, start), {}, None, []
    total = steps // ratio
    for number in range(total):
        gradient = CURVATURE * weights + sigma / np.sqrt(ratio) * rng.standard_normal(COORDINATES)
        current = rate(number) if rate else knobs["learning_rate"]
        if knobs.get("weight_decay"):
            weights = weights - weights * knobs["weight_decay"] * current
        weights = step(weights, gradient, number + 1, current, knobs, state)
        if average is not None:
            mean = weights if mean is None else average * mean + (1 - average) * weights
        if (number + 1) % (total // epochs) == 0:
            seen.append(((mean if mean is not None else weights).mean(), (mean if mean is not None else weights).std()))
    return np.array(seen)


def _average(state, name, value, beta):
    state[name] = beta * state.get(name, 0.0) + (1 - beta) * value
    return state[name]


def sgd(w, g, t, rate, knobs, state):
    state["m"] = knobs.get("momentum", 0.0) * state.get("m", 0.0) - rate * g
    return w + state["m"]


def adam(w, g, t, rate, knobs, state):
    b1, b2 = knobs["beta_1"], knobs["beta_2"]
    m, v = _average(state, "m", g, b1), _average(state, "v", g * g, b2)
    return w - rate * np.sqrt(1 - b2**t) / (1 - b1**t) * m / (np.sqrt(v) + knobs["epsilon"])


def adamax(w, g, t, rate, knobs, state):
    m = _average(state, "m", g, knobs["beta_1"])
    state["u"] = np.maximum(knobs["beta_2"] * state.get("u", 0.0), np.abs(g))
    return w - rate * m / ((1 - knobs["beta_1"] ** t) * (state["u"] + knobs["epsilon"]))


def rmsprop(w, g, t, rate, knobs, state):
    v = _average(state, "v", g * g, knobs["rho"])
    state["m"] = knobs["momentum"] * state.get("m", 0.0) + rate * g / np.sqrt(v + knobs["epsilon"])
    return w - state["m"]


def adagrad(w, g, t, rate, knobs, state):
    state["n"] = state.get("n", knobs["initial_accumulator_value"]) + g * g
    return w - rate * g / np.sqrt(state["n"] + knobs["epsilon"])


def adadelta(w, g, t, rate, knobs, state):
    rho, epsilon = knobs["rho"], knobs["epsilon"]
    v = _average(state, "v", g * g, rho)
    delta = -np.sqrt(state.get("d", 0.0) + epsilon) / np.sqrt(v + epsilon) * g
    _average(state, "d", delta * delta, rho)
    return w + rate * delta


def adafactor(w, g, t, rate, knobs, state):
    # One row of parameters, RMS of the weights below epsilon_2, no clipping in force.
    rho = min(rate, 1 / np.sqrt(t))
    v = _average(state, "v", g * g + knobs["epsilon_1"], 1 - float(t) ** knobs["beta_2_decay"])
    return w - rho * g / np.sqrt(v)


def ftrl(w, g, t, rate, knobs, state):
    power, beta = -knobs["learning_rate_power"], knobs["beta"]
    l2 = knobs["l2_regularization_strength"] + beta / (2 * rate)
    n = state.get("n", knobs["initial_accumulator_value"])
    # Started at the weights, where Keras starts at 0 and falls there in one step.
    z = state.get("z", -w * (n**power / rate + 2 * l2))
    state["n"] = n + g * g
    state["z"] = z + g - (state["n"] ** power - n**power) / rate * w
    return -state["z"] / (state["n"] ** power / rate + 2 * l2)


def lion(w, g, t, rate, knobs, state):
    direction = np.sign(knobs["beta_1"] * state.get("m", 0.0) + (1 - knobs["beta_1"]) * g)
    _average(state, "m", g, knobs["beta_2"])
    return w - rate * direction


def lamb(w, g, t, rate, knobs, state):
    m = _average(state, "m", g, knobs["beta_1"]) / (1 - knobs["beta_1"] ** t)
    v = _average(state, "v", g * g, knobs["beta_2"]) / (1 - knobs["beta_2"] ** t)
    update = m / (np.sqrt(v) + knobs["epsilon"])
    # The weights' norm is held at 1: the trust ratio then is what divides the update by its own size.
    return w - rate * update / np.sqrt(np.mean(update**2))


def schedule_free(w, g, t, rate, knobs, state):
    beta_1, z = knobs["beta_1"], state.get("z", w)
    v = _average(state, "v", g * g, knobs["beta_2"]) / (1 - knobs["beta_2"] ** t)
    rate = rate * (min(t / knobs["warmup_steps"], 1.0) if knobs["warmup_steps"] else 1.0)
    x = (w - (1 - beta_1) * z) / beta_1
    state["z"] = z - rate * g / (np.sqrt(v) + knobs["epsilon"])
    x = (1 - 1 / t) * x + state["z"] / t
    return (1 - beta_1) * state["z"] + beta_1 * x
