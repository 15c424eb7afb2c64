"""Curves from whole logs, for Python code."""

from __future__ import annotations

import math

import pytest

from ciao_kernel.display.plotting import newest_metric, read_curves


def test_each_point_is_kept() -> None:
    text = "".join(f"step {step} loss {step / 2}\n" for step in range(1, 5001)).encode()
    curves = read_curves(text)
    assert list(curves) == ["loss"]
    assert len(curves["loss"]) == 5000  # a picture has room for 500
    assert list(curves["loss"])[-1] == (5000, 2500)
    assert curves["loss"].last == 2500
    assert curves["loss"].axis == "step"


def test_a_loss_alone_in_its_line_is_a_metric_as_for_a_plot_and_prose_is_none() -> None:
    curves = read_curves(b"loss 0.5\nwe have samples 5 here: UNKNOWN ERROR (303)\nloss 0.25\n")
    assert list(curves) == ["loss"]
    assert list(curves["loss"]) == [(1, 0.5), (2, 0.25)]


def test_an_unfinished_line_counts() -> None:
    bar = b"Epoch 1/2\n\r 1/10 - loss: 3.0\r 2/10 - loss: 2.0\r 3/10 - lo"
    assert read_curves(bar)["loss"].last == 2.0
    assert math.isnan(read_curves(b"step 1 loss nan\n")["loss"].last)


def test_a_name_at_the_end_of_a_long_log_is_found() -> None:
    steps = "".join(f"step {step} loss {step / 2} {'x' * 60}\n" for step in range(40_000))
    curves = read_curves(f"{steps}step 40000 val_loss 0.5\n".encode())
    assert sorted(curves) == ["loss", "val_loss"]
    assert len(curves["loss"]) == 40_000
    assert read_curves(b"") == {}


def test_the_newest_number_is_the_loss_if_there_is_one() -> None:
    assert newest_metric(b"cut lo\nstep 1 loss 2\nstep 2 lr 0.1 val_loss 0.51234\nbye\n") == (
        "val_loss 0.5123"
    )
    assert newest_metric(b"step 2 acc: 1\n") == "acc 1"
    assert newest_metric(b"hello\n") == ""


@pytest.mark.parametrize(
    "line",
    [
        "listening on port: 29500",
        "seed=42",
        "rank      : 0 (local_rank: 0)",
        "  exitcode  : 1 (pid: 18359)",
        "Epoch 1 started in 12.3 s",
        "step 3: elapsed=12.3 samples: 600",
        "workers: 3",
    ],
)
def test_a_number_that_measures_nothing_is_no_metric(line: str) -> None:
    assert newest_metric(f"cut\nstep 1 loss 0.5\n{line}\n".encode()) == "loss 0.5"


def test_a_metric_by_another_name_is_one_where_the_cell_or_the_line_says_so() -> None:
    assert newest_metric(b"step 3: ndcg=0.7 seconds=3\n") == "ndcg 0.7"
    assert newest_metric(b"ndcg: 0.7\n") == ""
    assert newest_metric(b"ndcg: 0.7 loss: 1\n", ("NDCG",)) == "ndcg 0.7"
    assert newest_metric(b"Test accuracy: 0.91\n") == "test_accuracy 0.91"
    assert newest_metric(b"[9]\ttrain-mlogloss:0.25\n") == "train_mlogloss 0.25"


@pytest.mark.parametrize("rank", [b"", b"[rank0]: "])
def test_the_code_in_a_traceback_has_no_metrics(rank: bytes) -> None:
    trace = b"""Traceback (most recent call last):
  File "ciao_cell.py", line 13, in <module>
    model.fit(data, epochs=3, steps_per_epoch=16)
ValueError: bad
"""
    text = b"step 1 loss: 0.5\n" + b"".join(rank + line for line in trace.splitlines(True))
    assert list(read_curves(text)) == ["loss"]


OBJECTS = """\
(60000, 28, 28) uint8
x_train.shape = (60000, 28, 28), dtype=float32
shape=(3, 4)
step 1 batch shape: torch.Size([32, 3, 224, 224]) labels (32,)
step 1 inputs: torch.Size([32, 784]) weights: (784,) bias: [10, 3]
step 1: x=tensor([1, 2], device='cuda:0')
step 1 array([1., 2.])
  (0): Linear(in_features=784, out_features=10, bias=True)
  (1): Conv2d(1, 32, kernel_size=(3, 3), stride=(1, 1), padding=1)
Total params: 101,770 (397.54 KB)
float32[128,10] at step 1
spec: TensorSpec(shape=(None, 28), dtype=tf.float32, name='x')
KerasTensor(shape=(28, None), dtype=float32)
batch size: 32
"""


def test_shapes_and_layers_are_no_metrics() -> None:
    """The lines are those of numpy, PyTorch, JAX and Keras."""
    assert list(read_curves(f"{OBJECTS}step 1 loss: 0.5 acc: 1\n{OBJECTS}".encode())) == [
        "loss",
        "acc",
    ]
    for line in OBJECTS.splitlines():
        assert newest_metric(f"cut\nstep 1 loss 0.5\n{line}\n".encode()) == "loss 0.5", line


def test_a_metric_beside_a_shape_is_one() -> None:
    curves = read_curves(b"step 1 x (3, 4) loss: 0.5 shape=(3, 4) acc=[0.25, 0.5]\n")
    assert {name: curve.last for name, curve in curves.items()} == {"loss": 0.5, "acc": 0.25}
