"""Cases of the check of the first step, each in a process of its own."""

from __future__ import annotations

import logging
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tfscale
from tests.training.contract_cases_anywhere import (
    DATA,
    REFUSED,
    ClippedAfterTape,
    ClippedByHand,
    DrawsBeside,
    MixesOutside,
    ModuleLoss,
)
from tests.training.models import adam, sgd
from tfscale.exact.terms import sums_where_read


class Messages(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.kept: list[str] = []
        logging.getLogger("tfscale").addHandler(self)
        logging.getLogger("tfscale").setLevel(logging.INFO)

    def emit(self, record: logging.LogRecord) -> None:
        self.kept.append(record.getMessage())


def _data_parallel(num_replicas: int = 2) -> tfscale.DataParallel:
    if tfscale.resolve_cluster().num_workers == 1:
        tfscale.simulate_replicas(num_replicas)
    keras.utils.set_random_seed(1)
    return tfscale.DataParallel(global_batch=24)


def _state(model: keras.Model) -> list[np.ndarray]:
    variables = [*model.variables, *model.optimizer.variables]
    local = model.distribute_strategy.experimental_local_results
    return [np.asarray(copy) for variable in variables for copy in local(variable.value)]


def refused(name: str) -> dict[str, Any]:
    """The error of a program that cannot be divided, and whether it left any trace."""
    build, _ = REFUSED[name]
    return _refusal(build, lambda: adam(learning_rate=0.05), run_eagerly=True)


def _refusal(build: Any, optimizer: Any, **compiled: Any) -> dict[str, Any]:
    dp = _data_parallel()
    with dp.scope():
        model = dp.prepare(build())
        model.compile(optimizer(), **compiled)
        model(DATA["x"][:1])
    model.optimizer.build(model.trainable_variables)
    before = _state(model)
    try:
        model.fit(**DATA, verbose=0, shuffle=False)
    except tfscale.ParityError as error:
        return {"message": str(error), "is unchanged": all(map(np.array_equal, before, _state(model)))}
    return {"message": "", "is unchanged": False}


class _CentredIfWeighted(ModuleLoss):
    """Lets the rows of a batch meet where they have weights."""

    def train_step(self, data: Any) -> Any:
        x, y, *weights = data
        return super().train_step((x - tf.reduce_mean(x, axis=0) if weights else x, y))


def another_kind() -> dict[str, Any]:
    """What a second fit ends with, whose data have a part that those of the first had not."""
    dp, looks = _data_parallel(), []
    with dp.scope():
        model = dp.prepare(_CentredIfWeighted())
        model.compile(sgd(), run_eagerly=True)
    model.fit(**DATA, verbose=0, shuffle=False)
    before = _state(model)
    for _ in range(3):
        try:
            model.fit(**DATA, sample_weight=np.ones(len(DATA["x"])), verbose=0, shuffle=False)
        except tfscale.ParityError as error:
            looks.append(str(error))
    unchanged = all(map(np.array_equal, before, _state(model)))
    model.fit(**DATA, verbose=0, shuffle=False)
    return {"looks": looks, "is unchanged": unchanged}


def modes(mode: str) -> dict[str, Any]:
    """What another mode makes of a program that cannot be divided."""
    messages, dp = Messages(), _data_parallel()
    with dp.scope():
        model = dp.prepare(REFUSED["centred on own rows"][0](), check=mode)
        model.compile(sgd(), run_eagerly=True)
    history = model.fit(**DATA, epochs=1, verbose=0, shuffle=False)
    return {"trained": len(history.epoch), "warnings": [each for each in messages.kept if "is not that of one" in each]}


def on_workers() -> str:
    """The error that each of several workers ends with."""
    dp = _data_parallel()
    with dp.scope():
        model = dp.prepare(REFUSED["centred on own rows"][0]())
        model.compile(sgd(), run_eagerly=True)
    try:
        model.fit(**DATA, verbose=0, shuffle=False)
    except tfscale.ParityError as error:
        return str(error)
    return ""


def summed_where_read() -> dict[str, list[str]]:
    """What the log says of a step that works on gradients, with and without `sum_gradients`."""
    dp, found = _data_parallel(), {}
    for name, build in (("as it stands", ClippedAfterTape), ("with sum_gradients", ClippedByHand)):
        messages = Messages()
        with dp.scope():
            model = dp.prepare(build())
            model.compile(sgd())
        model.fit(**DATA, epochs=1, verbose=0, shuffle=False)
        found[name] = [each for each in messages.kept if "tfscale.sum_gradients" in each]
    return found


def divided_by_calls() -> dict[str, Any]:
    """How many rows layers get of a batch of 24 that the step mixes, and what is said of it."""
    messages, dp = Messages(), _data_parallel()
    with dp.scope():
        model = dp.prepare(MixesOutside())
        model.compile(sgd())
    model.fit(**DATA, epochs=1, verbose=0, shuffle=False)
    with dp.scope():
        drawing = dp.prepare(DrawsBeside())
        drawing.compile(sgd())
    try:
        drawing.fit(**DATA, verbose=0, shuffle=False)
        error = ""
    except tfscale.ParityError as refused:
        error = str(refused)
    said = [each for each in messages.kept if "mixes the rows" in each]
    return {"rows": set(map(int, model.counts.seen)), "said": said, "drawing": error}


def checked_once() -> dict[str, int]:
    """How many looks at a step there are, in several calls of `fit`."""
    from tfscale.training.step.state import State

    put_back, count = State.put_back, []

    def counted(self: State) -> Any:
        count.append(1)
        return put_back(self)

    State.put_back = counted  # type: ignore[method-assign]
    dp = _data_parallel()
    found = {}
    with dp.scope():
        stock = dp.prepare(keras.Sequential([keras.Input((8,)), keras.layers.Dense(2)]))
        stock.compile(sgd(), "mse", metrics=["mae"])
        own = dp.prepare(ModuleLoss())
        own.compile(sgd())
    for name, model in (("stock", stock), ("own", own)):
        for when in ("first", "second"):
            count.clear()
            model.fit(**DATA, verbose=0)
            found[f"{name}, {when} fit"] = len(count)
    with dp.scope():
        own.compile(adam())
    count.clear()
    own.fit(**DATA, verbose=0)
    found["own, compiled anew"] = len(count)
    return found


def steps_per_call() -> list[float]:
    """The losses of a program that is looked at and takes several steps per call."""
    dp = _data_parallel()
    with dp.scope():
        model = dp.prepare(ModuleLoss())
        model.compile(sgd(), steps_per_execution=2)
    history = model.fit(**DATA, epochs=3, verbose=0, shuffle=False)
    return [float(value) for value in history.history["under another name"]] + [int(model.optimizer.iterations.numpy())]


def plain_steps() -> list[float]:
    """The same on one device."""
    keras.utils.set_random_seed(1)
    model = ModuleLoss()
    model.compile(sgd(), steps_per_execution=2)
    history = model.fit(**DATA, epochs=3, verbose=0, shuffle=False)
    return [float(value) for value in history.history["under another name"]] + [int(model.optimizer.iterations.numpy())]


def averaged(num_replicas: int) -> list[list[np.ndarray]]:
    """All copies of what a layer averages over its rows in variables that are averaged over the replicas."""
    dp = _data_parallel(num_replicas)

    class Averaging(keras.layers.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.mean = keras.Variable(0.0, trainable=False, aggregation="mean")
            self.steps = keras.Variable(0.0, trainable=False, aggregation="mean")

        def call(self, x: Any, training: bool = False) -> Any:
            if training:
                self.mean.assign(0.5 * self.mean + keras.ops.mean(x))
                self.steps.assign_add(1)
            return x * (1 + self.mean)

    with dp.scope():
        layer = Averaging()
        model = dp.prepare(keras.Sequential([keras.Input((5,)), layer, keras.layers.Dense(1)]))
        model.compile(sgd(), "mse")
    rows = np.random.default_rng(2).normal(size=(49, 5)).astype("float32")
    model.fit(rows, rows[:, :1], epochs=1, shuffle=False, verbose=0)
    local = dp.strategy.experimental_local_results
    return [[np.asarray(copy) for copy in local(each.value)] for each in model.variables]


def answers() -> dict[str, Any]:
    """How many replicas whom is told of, in a step and outside of it."""
    dp = _data_parallel()
    told: dict[str, Any] = {"outside": dp.strategy.num_replicas_in_sync}

    class Asking(ModuleLoss):
        def train_step(self, data: Any) -> Any:
            context = tf.distribute.get_replica_context()
            told["strategy"] = tf.distribute.get_strategy().num_replicas_in_sync
            told["context"] = context.num_replicas_in_sync
            return super().train_step(data)

    with dp.scope():
        model = dp.prepare(Asking(), check="off")
        model.compile(sgd())
        loose = {"optimizer": adam(), "metric": keras.metrics.Mean()}
    model.fit(**DATA, verbose=0)
    from tfscale.replicas.made import made_under

    made = made_under(dp.strategy)
    told["seen"] = [any(loose["optimizer"] is each for each in made.optimizers)]
    told["seen"] += [any(loose["metric"] is each for each in made.metrics)]
    told["hooked"] = "update_state" in vars(loose["metric"])
    told["afterwards"] = dp.strategy.num_replicas_in_sync
    told["numbers"] = [float(model.optimizer.learning_rate), int(model.optimizer.iterations)]

    return told


def assigned_only() -> tuple[int, int]:
    """What a variable counts that a step never reads, and how many steps there were."""
    dp = _data_parallel()

    class Counting(ModuleLoss):
        def __init__(self) -> None:
            super().__init__()
            self.count = tf.Variable(0, trainable=False, aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA)

        def train_step(self, data: Any) -> Any:
            self.count.assign_add(1, read_value=False)
            return super().train_step(data)

    with dp.scope():
        model = dp.prepare(Counting())
        model.compile(sgd())
    model.fit(**DATA, verbose=0)
    return int(model.count.numpy()), int(model.optimizer.iterations.numpy())


class _Counted(keras.callbacks.Callback):
    """Leaves counts behind at an epoch's start, as a training that goes on in mid-epoch does."""

    def __init__(self, metric: keras.metrics.Metric) -> None:
        super().__init__()
        self.metric = metric

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        del logs
        if batch == 0:
            first = self.metric.variables[0].value
            dp_copies = tf.distribute.get_strategy().experimental_local_results(first)
            for copy, value in zip(dp_copies, (7.0, 0.0, 3.0), strict=False):
                copy.assign(value)


def counted_before() -> dict[str, Any]:
    """A step is looked at with counts and accumulated gradients that are not those of a new epoch."""
    dp = _data_parallel(3)
    with dp.scope():
        model = dp.prepare(ModuleLoss(), check="always")
        metric = keras.metrics.Sum()
        model.counted = metric
        model.compile(sgd(gradient_accumulation_steps=4))
        metric.update_state(0.0)
        history = model.fit(**DATA, epochs=1, verbose=0, shuffle=False, callbacks=[_Counted(metric)])
        # Where the steps of an epoch are not a multiple of four, accumulated gradients are left.
        model.compile(model.optimizer)
        again = model.fit(**DATA, epochs=1, verbose=0, shuffle=False, callbacks=[_Counted(metric)])
    return {"trained": len(history.epoch) + len(again.epoch), "left": float(metric.result())}


class ClipsLate(ModuleLoss):
    """Shrinks gradients that are larger than those of ordinary rows; of these, by less than rounding shows."""

    def changed(self, gradients: Any) -> Any:
        factor = (1.0 + (tf.linalg.global_norm(gradients) / 100.0) ** 8) ** -0.125
        return [each * factor for each in gradients]


def later(outlier: int, steps_per_execution: int = 1) -> tuple[str, int]:
    """The error of a step that is that of one replica until an outlier comes, and the updates that were made."""
    dp = _data_parallel()
    with dp.scope():
        model = dp.prepare(ClipsLate())
        model.compile(sgd(learning_rate=1e-3, momentum=0.0), steps_per_execution=steps_per_execution)
    x, y = (np.tile(DATA[name], (8, 1))[: 24 * 8] for name in ("x", "y"))
    y[24 * outlier :] *= 1e4
    try:
        model.fit(x, y, batch_size=24, verbose=0, shuffle=False)
    except tfscale.ParityError as error:
        return str(error), int(model.optimizer.iterations.numpy())
    return "", int(model.optimizer.iterations.numpy())


class CentredRows(keras.layers.Layer):
    """Each row without the mean of the rows it comes with."""

    def call(self, inputs: Any) -> Any:
        return inputs - tf.reduce_mean(inputs, axis=0)


class PredictsRanks(keras.Sequential):
    """A prediction that is made of those of all rows."""

    def predict_step(self, data: Any) -> Any:
        outputs = super().predict_step(data)
        return {"score": outputs, "share": tf.nn.softmax(outputs, axis=0)}


def predictions(build: str, run_eagerly: bool = False) -> dict[str, Any]:
    """What a model whose rows meet predicts before anything else was done, beside the same on one device."""
    models = {
        "layer": lambda: keras.Sequential([keras.Input((8,)), keras.layers.Dense(2), CentredRows()]),
        "step": lambda: PredictsRanks([keras.Input((8,)), keras.layers.Dense(2)]),
        "neither": lambda: keras.Sequential([keras.Input((8,)), keras.layers.Dense(2)]),
    }
    from tfscale.training.step.state import State

    messages, dp = Messages(), _data_parallel()
    plain = models[build]()
    # Twice: of the second call another number of rows is taken.
    expected = [plain.predict(DATA["x"][:rows], batch_size=5, verbose=0) for rows in (9, 22)]
    put_back, count = State.put_back, []

    def counted(self: State) -> Any:
        count.append(1)
        return put_back(self)

    State.put_back = counted  # type: ignore[method-assign]
    with dp.scope():
        model = dp.prepare(models[build]())
        model.compile(run_eagerly=run_eagerly)
    model.set_weights(plain.get_weights())
    try:
        found = [model.predict(DATA["x"][:rows], batch_size=5, verbose=0) for rows in (9, 22)]
    except tfscale.ParityError as error:
        return {"error": str(error)}
    pairs = zip(keras.tree.flatten(found), keras.tree.flatten(expected), strict=True)
    gap = max(float(np.max(np.abs(own - one))) for own, one in pairs)
    return {"gap": gap, "looks": len(count), "said": [each for each in messages.kept if "mixes the rows" in each]}


class Squeezes(keras.Model):
    """Predicts without the axes of one: those of the rows, too, where there is one row."""

    def __init__(self, units: int) -> None:
        super().__init__()
        self.dense = keras.layers.Dense(units)
        self.dense.build((None, 8))

    def call(self, inputs: Any) -> Any:
        return tf.squeeze(self.dense(inputs)[:, None])


def squeezed_predictions(units: int, calls: tuple[int, ...]) -> list[list[Any]]:
    """Shapes of the predictions of so many rows on one device and on three replicas, and how far they are apart."""
    dp, plain = _data_parallel(3), Squeezes(units)
    expected = [plain.predict(DATA["x"][:rows], batch_size=24, verbose=0) for rows in calls]
    with dp.scope():
        model = dp.prepare(Squeezes(units))
        model.compile()
    model.set_weights(plain.get_weights())
    found = [model.predict(DATA["x"][:rows], batch_size=24, verbose=0) for rows in calls]
    return [[one.shape, own.shape, float(np.max(np.abs(one - own)))] for one, own in zip(expected, found, strict=True)]


class MixesPairs(ModuleLoss):
    """Trains on each row together with another one, by an order that is drawn."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.seeds = keras.random.SeedGenerator(5)
        self.how = how
        if how == "layer":
            self.mixing = keras.layers.MixUp(seed=6)

    def train_step(self, data: Any) -> Any:
        x, y = data
        if self.how == "layer":
            images = {"images": tf.reshape(x, (-1, 2, 2, 2)), "labels": y}
            mixed = self.mixing(images, training=True)
            return super().train_step((tf.reshape(mixed["images"], (-1, 8)), mixed["labels"]))
        rows = tf.range(tf.shape(x)[0])
        order = tf.random.shuffle(rows) if self.how == "state" else keras.random.shuffle(rows, seed=self.seeds)
        return super().train_step((0.7 * x + 0.3 * tf.gather(x, order), 0.7 * y + 0.3 * tf.gather(y, order)))


def mixed_pairs(how: str) -> dict[str, Any]:
    """What is said of a step in which rows meet in an order that is drawn, and whether all copies stay equal."""
    messages, dp = Messages(), _data_parallel()
    with dp.scope():
        model = dp.prepare(MixesPairs(how))
        model.compile(sgd())
    try:
        model.fit(**DATA, epochs=1, verbose=0, shuffle=False)
    except tfscale.ParityError as error:
        return {"error": str(error)}
    local = dp.strategy.experimental_local_results
    copies = [[np.asarray(copy) for copy in local(variable.value)] for variable in model.trainable_variables]
    return {
        "said": [each for each in messages.kept if "mixes the rows" in each],
        "are equal": all(np.array_equal(copy, first) for first, *others in copies for copy in others),
    }


DRAWING = {
    "gamma": lambda shape, seeds: keras.random.gamma(shape, 0.5, seed=seeds),
    "beta": lambda shape, seeds: keras.random.beta(shape, 0.5, 0.5, seed=seeds),
    "binomial": lambda shape, seeds: keras.random.binomial(shape, 5.0, 0.5, seed=seeds),
    "poisson": lambda shape, seeds: tf.random.poisson(shape, 1.0),
    "categorical": lambda shape, seeds: tf.cast(tf.random.categorical(tf.zeros((shape[0], 4)), 1), tf.float32),
}


def drawing_rows() -> tuple[list[str], list[str]]:
    """What is drawn in a step that draws numbers of every kind for each row, and what is said of it in three looks."""
    drawn: list[str] = []

    class Drawing(ModuleLoss):
        def __init__(self) -> None:
            super().__init__()
            self.seeds = keras.random.SeedGenerator(5)

        def train_step(self, data: Any) -> Any:
            x, y = data
            # Added up, so that each one counts wherever another is zero.
            for name, draw in DRAWING.items():
                drawn.append(name)
                x = x + draw((tf.shape(x)[0], 1), self.seeds)
            return super().train_step((x, y))

    messages, dp = Messages(), _data_parallel()
    with dp.scope():
        model = dp.prepare(Drawing())
        model.compile(sgd(learning_rate=1e-3))
    model.fit(**DATA, epochs=2, verbose=0, shuffle=False)
    return sorted(set(drawn)), [each for each in messages.kept if "the first step" in each]


def drawing_eagerly(is_decided_in_python: bool) -> list[str]:
    """What is said of an eager step with dropout, which is looked at no more after the first time.

    Args:
        is_decided_in_python: Whether it goes by a number, so that it has no graph.
    """

    class Dropping(ModuleLoss):
        def __init__(self) -> None:
            super().__init__()
            self.dropout = keras.layers.Dropout(0.5)

        def call(self, inputs: Any) -> Any:
            rate = float(tf.reduce_mean(inputs)) if is_decided_in_python else 1.0
            return self.out(rate * self.dropout(self.hidden(inputs), training=True))

    messages, dp = Messages(), _data_parallel()
    with dp.scope():
        model = dp.prepare(Dropping())
        model.compile(sgd(), run_eagerly=True)
    model.fit(**DATA, epochs=2, verbose=0, shuffle=False)
    return [each for each in messages.kept if "could not be checked" in each]


class TakesRoom(CentredRows):
    """Centres rows, on a device that has no room for many."""

    room = 100

    def call(self, inputs: Any) -> Any:
        if (inputs.shape[0] or 0) > self.room:
            raise tf.errors.ResourceExhaustedError(None, None, "OOM when allocating a tensor")
        return super().call(inputs)


def room_for_so_many(rooms: tuple[int, ...]) -> dict[int, str]:
    """What is said of a step that mixes rows, by the number of rows that one device has room for."""
    messages, dp = Messages(), _data_parallel(3)
    said = {}
    for room in rooms:
        layer = TakesRoom()
        with dp.scope():
            model = dp.prepare(keras.Sequential([keras.Input((8,)), keras.layers.Dense(2), layer]))
            model.compile(adam(), loss="mse", run_eagerly=True)
        layer.room = room
        messages.kept.clear()
        try:
            model.fit(DATA["x"], DATA["y"], batch_size=24, verbose=0, shuffle=False)
            said[room] = ""
        except (tfscale.ParityError, tfscale.DeviceError) as error:
            said[room] = "\n".join([*messages.kept, str(error)])
    return said


class RareBranch(keras.Model):
    """Updates of two optimizers, of which one comes at every third step, and mixes rows."""

    def __init__(self) -> None:
        super().__init__()
        self.net = keras.layers.Dense(2)
        self.steps = self.add_weight(name="steps", shape=(), dtype="int32", initializer="zeros", trainable=False)

    def call(self, inputs: Any) -> Any:
        return self.net(inputs)

    def train_step(self, data: Any) -> dict[str, Any]:
        x, y = data

        def lazily() -> Any:
            return tf.reduce_sum(tf.square(tf.reduce_mean(self.net(x), axis=0)))

        self.steps.assign_add(1)
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(y - self.net(x)))
            loss += tf.cond(tf.equal(self.steps.value % 3, 0), lazily, lambda: tf.constant(0.0))
        variables = self.net.trainable_variables
        self.optimizer.apply(tape.gradient(loss, variables), variables)
        return {"loss": loss}


def every_third_step() -> dict[str, Any]:
    """What becomes of a branch that no look at steps 1, 2, 4, 8 ... would take."""
    messages, dp = Messages(), _data_parallel()
    found: dict[str, Any] = {}
    for name, prepare in (("plain", None), ("ours", dp)):
        keras.utils.set_random_seed(3)
        with dp.scope() if prepare else keras.name_scope(name):
            model = RareBranch()
            model = prepare.prepare(model) if prepare else model
            model.compile(sgd(learning_rate=0.05))
        try:
            model.fit(**DATA, epochs=2, verbose=0, shuffle=False)
            found[name] = [np.asarray(each) for each in model.get_weights()]
        except tfscale.ParityError as error:
            found[name] = str(error)
    return {**found, "said": messages.kept}


class LargeInputs(CentredRows):
    """Rows by their size among those that they come with, which tells nothing of what was added to all."""

    def call(self, inputs: Any) -> Any:
        return inputs / tf.sqrt(tf.reduce_mean(tf.square(inputs), axis=0))


def far_from_zero(dtype: str) -> dict[str, Any]:
    """The gap between predictions of rows that meet, of inputs in which a rounding is much; and what is said."""
    messages, dp = Messages(), _data_parallel()
    x = DATA["x"].astype(dtype) + (20000 if dtype == "float32" else 0)

    def build() -> keras.Model:
        keras.utils.set_random_seed(3)
        shift = keras.layers.Rescaling(1.0, offset=float(-x.mean()), dtype=dtype)
        layers = [keras.Input((8,), dtype=dtype), shift, keras.layers.Dense(2, dtype=dtype), LargeInputs(dtype=dtype)]
        return keras.Sequential(layers)

    expected = build().predict(x, batch_size=24, verbose=0)
    with dp.scope():
        model = dp.prepare(build())
        model.compile()
    found = model.predict(x, batch_size=24, verbose=0)
    return {"gap": float(np.max(np.abs(found - expected))), "said": messages.kept}


def watched() -> dict[str, list[int]]:
    """How many rows layers get of a batch of 24 that the step mixes, with callbacks that have it traced anew."""
    dp = _data_parallel()
    with dp.scope():
        model = dp.prepare(MixesOutside())
        model.compile(sgd())
    messages = Messages()
    model.fit(**DATA, epochs=1, verbose=0, shuffle=False, callbacks=[*dp.callbacks(), tfscale.callbacks.StallWatch(60)])
    return {"rows": sorted(set(map(int, model.counts.seen))), "said": [each[:60] for each in messages.kept]}


class NormalizedNoise(keras.Model):
    """A GAN whose networks normalize batches; its generator gets nothing but noise."""

    def __init__(self) -> None:
        super().__init__()
        normalized = [keras.layers.BatchNormalization, keras.layers.LeakyReLU]
        self.generator = keras.Sequential(
            [keras.Input((3,)), keras.layers.Dense(16), *(each() for each in normalized), keras.layers.Dense(8)]
        )
        self.discriminator = keras.Sequential(
            [keras.Input((8,)), keras.layers.Dense(16), *(each() for each in normalized), keras.layers.Dense(1)]
        )

    def compile(self, generator_optimizer: Any, discriminator_optimizer: Any) -> None:
        super().compile()
        self.optimizers = [generator_optimizer, discriminator_optimizer]

    def train_step(self, data: Any) -> dict[str, Any]:
        real = data[0] if isinstance(data, tuple) else data
        with tf.GradientTape(persistent=True) as tape:
            fake = self.generator(tf.random.normal((tf.shape(real)[0], 3)), training=True)
            score = self.discriminator(real, training=True), self.discriminator(fake, training=True)
            losses = [-tf.reduce_mean(score[1]), tf.reduce_mean(score[1]) - tf.reduce_mean(tf.tanh(score[0]))]
        for optimizer, network, loss in zip(self.optimizers, (self.generator, self.discriminator), losses, strict=True):
            variables = network.trainable_variables
            optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        return {"g_loss": losses[0], "d_loss": losses[1]}


def normalized_noise() -> dict[str, Any]:
    """What is said of a step in which noise that is the same for every row is normalized to what rounding leaves."""
    messages, dp = Messages(), _data_parallel(3)
    with dp.scope():
        model = dp.prepare(NormalizedNoise())
        model.compile(sgd(), sgd())
    try:
        history = model.fit(DATA["x"], epochs=1, verbose=0, shuffle=False)
    except tfscale.ParityError as error:
        return {"ended": str(error), "said": messages.kept}
    return {"ended": all(np.isfinite(each) for log in history.history.values() for each in log), "said": messages.kept}


class FailsInAnotherWay(ModuleLoss):
    """Clips by hand, and cannot be traced where gradients are summed as they are made."""

    def changed(self, gradients: Any) -> Any:
        if sums_where_read():
            raise ValueError("not in this way")
        return tf.clip_by_global_norm(gradients, 0.05)[0]


def no_other_way() -> dict[str, Any]:
    """As `refused`, of a step that was traced before it is run."""
    return _refusal(FailsInAnotherWay, sgd)
