"""Handwritten digits as a TensorFlow Datasets builder: real images, built on this machine, no download.

The 1797 images of 8 x 8 pixels come with scikit-learn; the last 297 are the test split.
"""

import contextlib
import fcntl
import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import sklearn.datasets
import tensorflow as tf
import tensorflow_datasets as tfds

DATA_DIR = Path(__file__).resolve().parent / "data"
NUM_TRAIN = 1500


class Digits(tfds.core.GeneratorBasedBuilder):
    """Handwritten digits, 8 x 8 pixels of 17 grey values."""

    VERSION = tfds.core.Version("1.0.0")

    def _info(self) -> tfds.core.DatasetInfo:
        return tfds.core.DatasetInfo(
            builder=self,
            description="Handwritten digits, 8 x 8 pixels with grey values from 0 to 16.",
            features=tfds.features.FeaturesDict(
                {
                    "image": tfds.features.Image(shape=(8, 8, 1)),
                    "label": tfds.features.ClassLabel(num_classes=10),
                }
            ),
            supervised_keys=("image", "label"),
            citation="E. Alpaydin, C. Kaynak. Optical Recognition of Handwritten Digits. UCI, 1998.",
        )

    def _split_generators(self, dl_manager: tfds.download.DownloadManager) -> dict[str, Iterator]:
        del dl_manager  # There is nothing to download.
        digits = sklearn.datasets.load_digits()
        return {
            "train": self._generate_examples(digits, range(NUM_TRAIN)),
            "test": self._generate_examples(digits, range(NUM_TRAIN, len(digits.target))),
        }

    def _generate_examples(self, digits, rows: range) -> Iterator[tuple[int, dict]]:
        for row in rows:
            image = digits.images[row].astype(np.uint8)[..., np.newaxis]
            yield row, {"image": image, "label": int(digits.target[row])}


def load_digits(split: str, data_dir: Path = DATA_DIR) -> tf.data.Dataset:
    """Returns a split as unbatched pairs of an image, float32 `[8, 8, 1]` in 0..1, and its label.

    The first call builds the data set under `data_dir`. The order is always the same.

    Args:
        split: "train" or "test", or a slice such as "train[:100]".
        data_dir: Where the data set is kept.
    """
    tfds.disable_progress_bar()
    with _one_process_at_a_time(data_dir), _random_state_kept():
        builder = Digits(data_dir=data_dir)
        builder.download_and_prepare(download_config=tfds.download.DownloadConfig(try_download_gcs=False))
    pairs = builder.as_dataset(split=split, as_supervised=True)
    return pairs.map(lambda image, label: (tf.cast(image, tf.float32) / 16.0, label))


@contextlib.contextmanager
def _one_process_at_a_time(data_dir: Path) -> Iterator[None]:
    """Workers of one machine start together: the first builds the data set, the others wait."""
    data_dir.mkdir(parents=True, exist_ok=True)
    with (data_dir / "lock").open("w") as lock:
        # Released when the file is closed, also by a process that is killed.
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def _random_state_kept() -> Iterator[None]:
    """Building draws random names for its files; a seeded script must not notice whether it did."""
    state = random.getstate()
    yield
    random.setstate(state)
