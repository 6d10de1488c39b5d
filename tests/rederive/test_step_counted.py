"""What Keras's callbacks count in steps, re-derived by `dp.callbacks`."""

import copy
import re

import keras
import pytest

from tfscale import DataParallel, Recipe, ScalingError
from tfscale.callbacks import ReplicaScaling


def grown(ratio=4):
    return DataParallel(per_replica_batch=8 * ratio, recipe=Recipe(8, warmup_epochs=0), devices=1)


@pytest.mark.parametrize(("save_freq", "new"), [(100, 25), (3, 1), (1, 1), (10, 3), ("epoch", "epoch")])
@pytest.mark.parametrize("cls", [keras.callbacks.ModelCheckpoint, keras.callbacks.BackupAndRestore])
def test_save_freq(tmp_path, cls, save_freq, new):
    callback = cls(tmp_path / "model.keras", save_freq=save_freq)
    dp = grown()
    [same] = dp.callbacks([callback])
    assert same is callback
    assert callback.save_freq == new
    assert re.search(rf"^{cls.__name__}.save_freq .* {save_freq} +{new} ", str(dp), re.MULTILINE)


def test_backup_that_was_switched_off(tmp_path):
    callback = keras.callbacks.BackupAndRestore(tmp_path, save_freq=False)
    grown().callbacks([callback])
    assert callback.save_freq is False


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ({"update_freq": 100, "profile_batch": (10, 20)}, (25, (3, 5))),
        ({"update_freq": "batch", "profile_batch": 7}, (1, (2, 2))),
        ({"update_freq": "epoch", "profile_batch": 0}, ("epoch", (0, 0))),
        ({"update_freq": "epoch", "profile_batch": "10,20"}, ("epoch", (3, 5))),
    ],
)
def test_tensorboard(tmp_path, monkeypatch, given, kept):
    # Without a start of TensorFlow's profiler to warm it up.
    monkeypatch.setattr(keras.callbacks.TensorBoard, "_start_profiler", lambda *args, **kwargs: None)
    monkeypatch.setattr(keras.callbacks.TensorBoard, "_stop_profiler", lambda *args, **kwargs: None)
    callback = keras.callbacks.TensorBoard(tmp_path, **given)
    dp = grown()
    dp.callbacks([callback])
    assert (callback.update_freq, (callback._start_batch, callback._stop_batch)) == kept
    assert "TensorBoard.profile_batch" in str(dp)


def test_ratio_of_one_changes_nothing(tmp_path):
    callback = keras.callbacks.ModelCheckpoint(tmp_path / "model.keras", save_freq=100)
    assert DataParallel(global_batch=8, devices=1).callbacks([callback]) == [callback]
    assert callback.save_freq == 100


def test_once_only(tmp_path):
    callback = keras.callbacks.ModelCheckpoint(tmp_path / "model.keras", save_freq=100)
    dp = grown()
    dp.callbacks([callback])
    dp.callbacks([callback])
    assert callback.save_freq == 25
    with pytest.raises(ScalingError, match=r"only once(.|\n)*batch_ratio=4\. Make a new one"):
        grown(8).callbacks([callback])


def test_a_copy_is_rederived_no_second_time(tmp_path):
    callback = keras.callbacks.ModelCheckpoint(tmp_path / "model.keras", save_freq=100)
    dp = grown()
    dp.callbacks([callback])
    [again] = dp.callbacks([copy.deepcopy(callback)])
    assert again.save_freq == 25


def test_scaling_comes_before_what_saves(tmp_path):
    checkpoint = keras.callbacks.ModelCheckpoint(tmp_path / "model.keras")
    stop, scaling = keras.callbacks.EarlyStopping(), ReplicaScaling(4)
    assert grown().callbacks([checkpoint, stop, scaling]) == [scaling, checkpoint, stop]


class Own(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.log_every = 50
        self.epochs = 3


def test_callback_of_ones_own():
    dp = grown()
    with pytest.warns(UserWarning, match=r"Own\.log_every\. Set them yourself"):
        dp.callbacks([Own()])
    assert re.search(r"^Own.log_every +50 +50 +not understood$", str(dp), re.MULTILINE)


def test_scheduler_whose_rates_are_not_scaled():
    scheduler = keras.callbacks.LearningRateScheduler(lambda epoch: 0.1)
    with pytest.warns(UserWarning, match="LearningRateScheduler.schedule"):
        grown().callbacks([scheduler])
    grown().callbacks([scheduler, ReplicaScaling(4)])


class PerBatch(keras.callbacks.LearningRateScheduler):
    def on_train_batch_begin(self, batch, logs=None):
        self.on_epoch_begin(batch)


@pytest.mark.parametrize(
    ("scheduler", "sign"),
    [
        (PerBatch(lambda index: 0.1), "PerBatch.on_train_batch_begin"),
        (keras.callbacks.LearningRateScheduler(lambda step: 0.1), "function of 'step'"),
        (keras.callbacks.LearningRateScheduler(lambda global_batch, rate: rate), "function of 'global_batch'"),
    ],
)
def test_scheduler_that_counts_batches(scheduler, sign):
    with pytest.raises(ScalingError, match=rf"must count epochs(.|\n)*Received: .*{sign}(.|\n)*LearningRateSchedule"):
        grown().callbacks([scheduler])
    assert DataParallel(global_batch=8, devices=1).callbacks([scheduler]) == [scheduler]


@pytest.mark.parametrize("given", [[None], ["runs"], [keras.callbacks.EarlyStopping]])
def test_what_is_no_callback(given):
    with pytest.raises(ScalingError, match=r"takes Keras callbacks(.|\n)*Received"):
        grown().callbacks(given)
