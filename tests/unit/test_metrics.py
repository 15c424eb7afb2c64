"""Numbers in log lines: every usual form, curves that stay small, and no line that does harm."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ciao_kernel.metrics import MOST_POINTS, Metrics, Series
from ciao_kernel.model import Replica
from ciao_kernel.readings import fold, read

ONE, TWO = Replica("worker", 0), Replica("worker", 1)
BAR = "━" * 20


@pytest.mark.parametrize(
    ("line", "values", "step", "epoch"),
    [
        ("step 20 loss 0.31", {"loss": 0.31}, 20, None),
        ("loss: 0.31", {"loss": 0.31}, None, None),
        ("Loss = .31e-1", {"loss": 0.031}, None, None),
        ("loss is 0.31", {"loss": 0.31}, None, None),
        ("loss -> -0.31", {"loss": -0.31}, None, None),
        ('{"step": 20, "loss": 0.31}', {"loss": 0.31}, 20, None),
        ('{"global_step": 20, "step": 2, "m": {"acc": 1e-3}}', {"acc": 0.001}, 20, None),
        ("{'loss': 0.31, 'epoch': 0.1}", {"loss": 0.31}, None, 0.1),
        ("epoch=1 step=20 loss=0.31", {"loss": 0.31}, 20, 1),
        (
            f"10/100 {BAR} 1s 5ms/step - accuracy: 0.9000 - loss: 0.3100",
            {"accuracy": 0.9, "loss": 0.31},
            10,
            None,
        ),
        (
            "100/100 - 1s - 5ms/step - loss: 0.3 - val_loss: 0.4",
            {"loss": 0.3, "val_loss": 0.4},
            100,
            None,
        ),
        (f" 782/Unknown {BAR} 10s 12ms/step - loss: 1.2", {"loss": 1.2}, 782, None),
        ("Epoch 3/10", {}, None, 3),
        (
            "Epoch 0: 10%|#  | 20/200 [00:01<00:10, 15.0it/s, v_num=1, train_loss=0.31]",
            {"v_num": 1, "train_loss": 0.31},
            20,
            0,
        ),
        (" 20%|██  | 20/100 [00:01<00:05, 15.1it/s, loss=0.31]", {"loss": 0.31}, 20, None),
        ("20it [00:01, 15.1it/s, loss=0.31]", {"loss": 0.31}, 20, None),
        ("Epoch [3/10], Step [20/100], Loss: 0.3124", {"loss": 0.3124}, 20, 3),
        ("Train Epoch: 1 [640/60000 (1%)]\tLoss: 2.301", {"train_loss": 2.301}, 640, 1),
        (
            "Test set: Average loss: 0.0321, Accuracy: 9900/10000 (99%)",
            {"test_loss": 0.0321, "test_accuracy": 0.99},
            None,
            None,
        ),
        (
            "Epoch: [0][ 20/5005]\tTime  0.4 ( 0.5)\tLoss 6.9e+00 (7.0e+00)\tAcc@1   0.00 (  0.20)",
            {"time": 0.4, "loss": 6.9, "acc_1": 0},
            20,
            0,
        ),
        ("INFO:tensorflow:loss = 0.31, step = 100 (0.5 sec)", {"loss": 0.31}, 100, None),
        (
            "Saving dict for global step 100: accuracy = 0.9, global_step = 100, loss = 0.3",
            {"accuracy": 0.9, "loss": 0.3},
            100,
            None,
        ),
        ("[2026-11-21 23:48:31] epoch 3 | iter 20/ 100 | loss: 1.2e-3", {"loss": 0.0012}, 20, 3),
        (
            "| epoch   1 |   200/ 2983 batches | lr 20.00 | loss  7.60 | ppl  1997.5",
            {"lr": 20, "loss": 7.6, "ppl": 1997.5},
            200,
            1,
        ),
        (
            "Train loss: 0.4, acc: 0.9 | Val loss: 0.5, acc: 0.8",
            {"train_loss": 0.4, "train_acc": 0.9, "val_loss": 0.5, "val_acc": 0.8},
            None,
            None,
        ),
        ("step 20: train loss 0.3, val loss 0.4", {"train_loss": 0.3, "val_loss": 0.4}, 20, None),
        ('{"epoch": 1, "train/loss": 0.31}', {"train_loss": 0.31}, None, 1),
        ("loss: tensor(0.3100, grad_fn=<NllLossBackward0>)", {"loss": 0.31}, None, None),
        ("loss np.float32(0.31)", {"loss": 0.31}, None, None),
        ("loss: inf step: 3 lr: -Infinity", {"loss": math.inf, "lr": -math.inf}, 3, None),
        ("ETA: 0:00:10 - loss: 0.31", {"loss": 0.31}, None, None),
        ("2026/11/21 23:48 loss 0.31", {"loss": 0.31}, None, None),
        ("[01/15 12:00:00] loss 0.31", {"loss": 0.31}, None, None),
        ("1/15, 12:00 loss 0.31", {"loss": 0.31}, None, None),
        ("01/15T12:00:00 loss 0.31", {"loss": 0.31}, None, None),
        (
            "01/15 12:00:00 - mmengine - INFO - [1][50/100] eta: 0:00:10  loss: 0.3",
            {"loss": 0.3},
            50,
            None,
        ),
        (
            f"Epoch 0/9 {BAR} 20/50 0:00:01 • 0:00:10 15.0it/s v_num: 1.0 train_loss: 0.3",
            {"v_num": 1, "train_loss": 0.3},
            20,
            0,
        ),
        ("step 1,000 loss: 1,234.5", {"loss": 1234.5}, 1000, None),
        ("step 1,000/20,000: loss 0.3", {"loss": 0.3}, 1000, None),
        ("10,000/20,000 [00:01<00:05, loss=-1,234,567e-6]", {"loss": -1.234567}, 10_000, None),
        ("step=1,loss=0,123,acc=1,2345,auc=1,234,5", {"loss": 0, "acc": 1, "auc": 1}, 1, None),
        ("took 3.5 s, 10 loss functions, port 10.0.0.1, v1.2", {"took": 3.5}, None, None),
        ("nothing of interest", {}, None, None),
    ],
)
def test_a_line_is_read(
    line: str, values: dict[str, float], step: float | None, epoch: float | None
) -> None:
    found = read(line)
    assert (found.values, found.step, found.epoch) == (values, step, epoch)


def test_how_many_steps_there_are_may_have_commas_too() -> None:
    assert read("step 1,000/20,000: loss 0.3").total == 20_000
    assert read("1,000/20,000 [00:01<00:05, loss=0.3]").total == 20_000


def test_no_number_is_a_number_too() -> None:
    assert math.isnan(read("step 3 loss nan").values["loss"])
    assert math.isnan(read('{"loss": NaN}').values["loss"])


@pytest.mark.parametrize(
    ("name", "folded"),
    [
        ("loss", "loss"),
        ("Val/Loss", "val_loss"),
        ("validation-loss", "val_loss"),
        ("training loss", "train_loss"),
        ("Acc@1", "acc_1"),
        ("train", "train"),
    ],
)
def test_names_are_compared_without_their_spelling(name: str, folded: str) -> None:
    assert fold(name) == folded


PIECES = [
    *("loss", " ", ":", "=", "0.3", "/", "10", "epoch", "step", "nan", "1e999", "(", "[", "-"),
    *("\t", "val", "'", "tensor(", "%", "it [", "\x1b[1m", "0", "9" * 400, "\r", "\x08", "\n"),
]


@given(st.text(max_size=300) | st.lists(st.sampled_from(PIECES), max_size=30).map("".join))
def test_any_line_can_be_read(line: str) -> None:
    metrics = Metrics(("loss", "val_loss"))
    metrics.add(ONE, line.encode("utf-8", "surrogatepass"))
    metrics.peek(ONE, line.encode("utf-8", "surrogatepass"))


@given(st.floats(allow_nan=False), st.integers(0, 10**9))
def test_what_python_and_json_write_comes_back(value: float, step: int) -> None:
    for line in (f"step {step} loss {value!r}", json.dumps({"step": step, "loss": value})):
        found = read(line)
        assert found.values == {"loss": value}
        assert found.step == step


@pytest.mark.parametrize(
    "line",
    [
        *("a1 " * 3000, "loss" + " " * 9000, "loss:" * 2000, "1/" * 4000, "a.b-" * 2000),
        *("loss tensor" * 800, "loss" + "(" * 9000, f"loss {'1' * 9000}x", "\x1b[1;" * 2000),
    ],
)
def test_a_line_of_any_form_is_read_in_time(line: str) -> None:
    # A pattern that goes back and forth would not be done before the test's own time is up.
    metrics = Metrics(("loss",))
    metrics.add(ONE, (line + " loss").encode() * 2)


# ---------------------------------------------------------------------------------- curves


def curve(*lines: str, wish: str = "loss", replica: Replica = ONE) -> list[tuple[float, float]]:
    metrics = Metrics((wish,))
    for line in lines:
        metrics.add(replica, f"{line}\n".encode())
    series = metrics.curves[wish].get(replica, Series())
    return list(zip(series.x, series.y, strict=True))


def test_steps_are_the_axis_where_lines_have_them() -> None:
    assert curve("step 10 loss 3", "step 20 loss 2") == [(10, 3), (20, 2)]
    assert curve("loss 3", "loss 2") == [(1, 3), (2, 2)]
    assert curve("Epoch 1: loss 3", "Epoch 2: loss 2") == [(1, 3), (2, 2)]
    assert curve("Epoch 1/2", "loss: 3", "Epoch 2/2", "loss: 2") == [(1, 3), (2, 2)]


def test_steps_that_begin_again_in_each_epoch_go_on() -> None:
    keras = [f"Epoch {e}/2\n50/100 - loss: {5 - e}\n100/100 - loss: {4 - e}" for e in (1, 2)]
    assert curve(*keras) == [(50, 4), (100, 3), (150, 3), (200, 2)]
    last_only = [f"Epoch {e}/3\n100/100 - 1s - loss: {4 - e}" for e in (1, 2, 3)]
    assert curve(*last_only) == [(100, 3), (200, 2), (300, 1)]
    lightning = [f"Epoch {e}: 50%|#| {n}/20 [loss={9 - e}]" for e in (0, 1) for n in (10, 20)]
    assert curve(*lightning) == [(10, 9), (20, 9), (30, 8), (40, 8)]
    both_grow = [f"epoch={s // 10} step={s} loss={s}" for s in range(0, 40, 5)]
    assert curve(*both_grow) == [(s, s) for s in range(0, 40, 5)]
    bars = [f"{n}/20 [loss={n}]" for n in (10, 20, 10, 20)]
    assert curve(*bars) == [(10, 10), (20, 20), (30, 10), (40, 20)]


def test_a_bar_that_writes_over_itself_is_many_points() -> None:
    parts = (f"\x1b[1m {n}/3\x1b[0m {BAR} 0s 5ms/step - loss: {4 - n}" for n in (1, 2, 3))
    line = ("\x08" * 70 + "\r").join(parts)
    assert curve(f"Epoch 1/2\n\r{line}", f"Epoch 2/2\n\r{line}") == [
        (place + 1, 3 - place % 3) for place in range(6)
    ]


def test_a_line_that_comes_twice_is_one_point() -> None:
    lines = [f"Epoch {e}/3\n{n}/10 - loss: {n}" for e in (1, 2, 3) for n in range(1, 11)]
    once = curve(*lines)
    assert len(once) == 30
    assert curve(*(line for line in lines for _ in range(2))) == once
    assert curve(*lines, *lines) == once


def test_a_training_that_goes_back_replaces_what_it_did() -> None:
    first = [f"step {s} loss {s}" for s in range(0, 100, 10)]
    again = [f"step {s} loss 1" for s in range(50, 80, 10)]
    assert curve(*first, *again) == [(s, s) for s in range(0, 50, 10)] + [(50, 1), (60, 1), (70, 1)]


def test_an_unfinished_bar_is_drawn_and_comes_again_whole() -> None:
    metrics = Metrics(("loss",))
    bar = [f"{n}/100 {BAR} - loss: {n}" for n in (10, 20, 30)]
    assert not metrics.peek(ONE, b"\r".join(one.encode() for one in bar))
    metrics.add(ONE, b"Epoch 2/3\n")
    assert metrics.peek(ONE, "\r".join(bar).encode())
    series = metrics.curves["loss"][ONE]
    assert list(zip(series.x, series.y, strict=True)) == [(20, 20)]  # the last may be cut off
    metrics.add(ONE, "\r".join(bar).encode() + b"\n")
    assert list(zip(series.x, series.y, strict=True)) == [(10, 10), (20, 20), (30, 30)]


def test_a_wish_for_loss_is_one_for_training_loss() -> None:
    assert curve("step 1 train_loss=3 val_loss=4") == [(1, 3)]
    assert curve("step 1 train/loss=3 loss=5") == [(1, 5)]
    metrics = Metrics(("Validation/Loss",))
    metrics.add(ONE, b"step 1 train loss 3, val loss 4\n")
    assert metrics.curves["val_loss"][ONE].y == [4]


def test_each_replica_and_each_metric_has_its_own_curve() -> None:
    metrics = Metrics(("loss", "accuracy"))
    metrics.add(ONE, b"step 1 loss 3 accuracy 0.1\nstep 2 loss 2\n")
    metrics.add(TWO, b"step 1 loss 4\n")
    assert metrics.curves["loss"][ONE].y == [3, 2]
    assert metrics.curves["loss"][TWO].y == [4]
    assert list(metrics.curves["accuracy"]) == [ONE]


def test_a_metric_that_never_comes_is_known_and_what_came_instead() -> None:
    metrics = Metrics(("losss", "loss"))
    metrics.add(ONE, b"took 3 seconds\n" + b"step 1 loss 3 accuracy 0.1\n" * 3 + b"auc: 1\n")
    assert metrics.missing == ("losss",)
    assert metrics.seen() == ["loss", "accuracy", "auc"]
    for number in range(5_000):
        metrics.add(ONE, f"name{number}: {number}\n".encode())
    assert len(metrics.seen(10**6)) < 1000


FLOATS = st.floats(allow_nan=True, allow_infinity=True)


@given(st.lists(FLOATS, max_size=400), st.integers(16, 64))
def test_a_curve_stays_small_and_keeps_its_extremes(values: list[float], limit: int) -> None:
    series = Series(limit)
    for place, value in enumerate(values):
        series.add(place, value)
        assert len(series.x) == len(series.y) <= limit
    given_points = {(place, str(value)) for place, value in enumerate(values)}
    assert {(x, str(y)) for x, y in zip(series.x, series.y, strict=True)} <= given_points
    assert series.x == sorted(set(series.x))
    finite = [value for value in values if math.isfinite(value)]
    kept = [value for value in series.y if math.isfinite(value)]
    if values:
        assert (series.x[0], series.x[-1]) == (0, len(values) - 1)
        assert len(finite) == len(values) or len(kept) < len(series.y)
    if finite:
        assert (min(finite), max(finite)) == (min(kept), max(kept))


@given(st.lists(st.tuples(st.integers(0, 50), FLOATS), max_size=100))
def test_places_only_grow(points: list[tuple[int, float]]) -> None:
    series = Series()
    for x, y in points:
        series.add(x, y)
        assert series.x == sorted(set(series.x))
        assert (series.x[-1], str(series.y[-1])) == (x, str(y))


def test_memory_is_bounded() -> None:
    metrics = Metrics(("loss",))
    for start in range(0, 100_000, 1000):
        lines = (f"step {step} loss {step}" for step in range(start, start + 1000))
        metrics.add(ONE, "\n".join(lines).encode())
    series = metrics.curves["loss"][ONE]
    assert MOST_POINTS / 3 < len(series.x) <= MOST_POINTS
    assert (series.x[0], series.x[-1]) == (0, 99_999)
