"""A cell that Keras 3 will refuse is told so before its start, and no other cell."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from ciao_kernel.model import JobSpec, ReplicaGroup
from ciao_kernel.session.keras_note import keras_note

CELL = """\
import tensorflow as tf
strategy = tf.distribute.MultiWorkerMirroredStrategy()
with strategy.scope():
    model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
    model.compile(loss="mse")
model.fit(data, epochs=2)
"""
SPEC = JobSpec("tensorflow", (ReplicaGroup("worker", 2),))


def test_the_strategy_and_the_remedy_are_named() -> None:
    assert keras_note(SPEC, CELL) == (
        "Keras 3, which TensorFlow has since 2.16, does not train by `fit` under "
        "MultiWorkerMirroredStrategy. To train with Keras 2, add %packages=tf_keras and "
        "%envvar=TF_USE_LEGACY_KERAS=1."
    )


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("tf.distribute.Multi", "tf.distribute.experimental.Multi"),
        ("MultiWorkerMirroredStrategy()", "ParameterServerStrategy(resolver)"),
        ("MultiWorkerMirroredStrategy()", "experimental.ParameterServerStrategy(resolver)"),
        ("tf.keras", "keras"),
        ("import tensorflow as tf", "from tensorflow import keras as k, x as tf"),
        ("epochs=2)", "text='\\d')"),
    ],
)
def test_other_ways_to_write_it(old: str, new: str) -> None:
    assert "does not train by `fit`" in keras_note(SPEC, CELL.replace(old, new))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("model.fit(", "train(model, "),  # a loop of its own
        ("model.fit(data", "print('model.fit(')\nprint(data"),
        ("MultiWorkerMirroredStrategy", "MirroredStrategy"),
        ("strategy = ", "# strategy = "),
        ("tf.keras", "mine"),  # some other `fit`
        ("tf.keras", "tf_keras"),
        ("import tensorflow", "os.environ['TF_USE_LEGACY_KERAS'] = '1'\nimport tensorflow"),
        ("epochs=2)", "epochs=2"),  # another Python may read it
    ],
)
def test_no_note_where_it_is_not_plain(old: str, new: str) -> None:
    assert old in CELL
    assert keras_note(SPEC, CELL.replace(old, new)) == ""


def test_no_note_where_the_variable_is_set_or_nothing_is_spread() -> None:
    name = "TF_USE_LEGACY_KERAS"
    groups = SPEC.groups
    assert keras_note(JobSpec("tensorflow", groups, env=((name, "1"),)), CELL) == ""
    assert keras_note(SPEC, CELL, {name: "1"}) == ""
    assert keras_note(SPEC, CELL, {"HOME": "/x"})
    assert keras_note(JobSpec("tensorflow", (ReplicaGroup("worker", 1),)), CELL) == ""
    assert keras_note(JobSpec("pytorch", groups), CELL) == ""


def test_the_package_is_not_asked_for_where_it_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "%packages=tf_keras" in keras_note(SPEC, CELL, here=True)
    (tmp_path / "tf_keras.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    remedy = "To train with Keras 2, add %envvar=TF_USE_LEGACY_KERAS=1."
    assert keras_note(SPEC, CELL, here=True).endswith(remedy)
    assert "%packages=tf_keras" in keras_note(SPEC, CELL)
