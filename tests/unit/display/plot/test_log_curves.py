"""Curves from whole logs, for Python code."""

from __future__ import annotations

import math

import pytest

from ciao_kernel.display.plot.metrics import Metrics
from ciao_kernel.display.plotting import newest_metric, read_curves
from ciao_kernel.model import Replica


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


def test_each_state_of_an_open_bar_is_a_point_except_for_one_that_may_be_cut() -> None:
    text = "\n" + "".join(f"\rstep {step}/100 loss {1 / step}" for step in range(1, 41))
    running, ended = read_curves(text.encode()), read_curves(text.encode(), over=True)
    assert [x for x, _ in running["loss"]] == list(range(1, 40))
    assert list(ended["loss"]) == [(step, 1 / step) for step in range(1, 41)]


def test_the_last_line_of_an_ended_job_needs_no_line_feed() -> None:
    text = b'{"step": 1, "loss": 0.5}\n{"step": 2, "loss": 0.4}'
    assert read_curves(text)["loss"].last == 0.5
    assert read_curves(text, over=True)["loss"].last == 0.4


def test_a_bar_longer_than_what_is_read_at_a_time_is_whole() -> None:
    states = (f"\r{step}/9000 loss {step}{' ' * 200}" for step in range(1, 9001))
    curve = read_curves("".join(states).encode(), over=True)["loss"]
    assert curve.steps == curve.values == tuple(range(1, 9001))
    long = f"step 1 loss 1 {' ' * 2**21}\nstep 2 loss 2\n".encode()
    assert list(read_curves(long)["loss"]) == [(1, 1), (2, 2)]


def test_a_name_at_the_end_of_a_long_log_is_found() -> None:
    steps = "".join(f"step {step} loss {step / 2} {'x' * 60}\n" for step in range(40_000))
    curves = read_curves(f"{steps}step 40000 val_loss 0.5\n".encode())
    assert sorted(curves) == ["loss", "val_loss"]
    assert len(curves["loss"]) == 40_000
    assert read_curves(b"") == {}


@pytest.mark.parametrize("rank", ["", "[1] ", "[rank0]: ", "[12] [rank3]: "])
@pytest.mark.parametrize("head", ["Traceback (most recent call last):", "cut"])
def test_a_line_of_code_in_a_traceback_is_no_newest_number(head: str, rank: str) -> None:
    frames = ['  File "/job/cell.py", line 3, in <module>', "    loss = 1 / 0", "           ~~^~~"]
    lines = [f"{rank}{line}" for line in (head, *frames, "ZeroDivisionError: division by zero")]
    before = "cut\nstep 1 loss 0.5\n" if head != "cut" else ""
    expected = "loss 0.5" if before else ""
    assert newest_metric((before + "\n".join(lines) + "\n").encode()) == expected


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


@pytest.mark.parametrize("rank", [b"", b"[rank0]: ", b"[1] ", b"[1] [rank1]: "])
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


def bars(head: str, steps: int, total: int, rest: str = "") -> str:
    """Bars of tqdm, each of which writes over the one before; {} in the rest is the step."""
    return "".join(
        f"\r{head}{step * 100 // total:3d}%|███   | {step}/{total} [00:01<00:05, 9.38it/s"
        f"{rest.format(step)}]"
        for step in range(steps + 1)
    )


@pytest.mark.parametrize("head", ["Map: ", "Map (num_proc=4): "])
def test_the_bar_of_a_preparation_is_no_metric_and_moves_none(head: str) -> None:
    trainer = "".join(
        f"{bars('', step, 300)}\r{{'loss': {5 - step / 100}, 'epoch': {step / 100}}}\n"
        for step in range(50, 301, 50)
    )
    curves = read_curves(f"{bars(head, 10, 10)}\n{trainer}".encode())
    assert list(curves) == ["loss"]
    assert [x for x, _ in curves["loss"]] == [0.5, 1, 1.5, 2, 2.5, 3]


def lightning(epochs: int = 2, steps: int = 20) -> str:
    text = "TPU available: False, using: 0 TPU cores\n"
    text += f"\rSanity Checking DataLoader 0: 100%|████| 2/2 [00:00<00:00, 90.4it/s]\r{' ' * 40}\r"
    for epoch in range(epochs):
        text += bars(f"Epoch {epoch}: ", steps, steps, ", v_num=0, train_loss=0.{}")
        text += f"\n{bars('Validation DataLoader 0: ', 5, 5)}\n"
    return text


def test_each_epoch_of_lightning_is_in_the_curves() -> None:
    text = lightning().encode()
    curves = read_curves(text)
    assert sorted(curves) == ["train_loss", "v_num"]
    one, asked = Replica("worker", 0), Metrics(("train_loss",))
    asked.add(one, text)
    assert list(curves["train_loss"].steps) == asked.curves["train_loss"][one].x
    assert curves["train_loss"].steps == tuple(range(41))


def test_rounds_of_boosting_are_steps_and_its_best_round_is_told_again() -> None:
    rounds = [
        f"[{n}]\ttraining's l2: {1 / n}\tvalid_1's l2: {1 + (n - 30) ** 2}\n"
        for n in range(10, 60, 10)
    ]
    for end in ("Early stopping, best iteration is:", "Stopping. Best iteration:"):
        text = "".join([*rounds, f"{end}\n", rounds[2]])
        curves = read_curves(text.encode())
        assert sorted(curves) == ["train_l2", "val_l2"]
        assert list(curves["val_l2"]) == [(10, 401), (20, 101), (30, 1), (40, 101), (50, 401)]
        # Another training begins at its first round.
        assert list(read_curves((text + rounds[0]).encode())["val_l2"]) == [(10, 401)]


def test_words_of_a_sentence_are_no_metrics() -> None:
    text = "".join(
        f"Epoch {epoch}/2\n10/10 - loss: 0.5\n"
        f"Epoch {epoch}: val_loss improved from inf to 0.{9 - epoch}, saving model to m.keras\n"
        f"Validation loss went from 0.5 to 0.4\nnumber of nan iterations: 0 of 3\n"
        for epoch in (1, 2)
    )
    assert not {"from", "to", "of", "val_from", "val_to"} & set(read_curves(text.encode()))
