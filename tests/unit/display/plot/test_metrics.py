"""Curves of numbers in log lines: which line is a point of which curve, and where."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ciao_kernel.display.plot.metrics import Metrics
from ciao_kernel.display.plot.series import Series
from ciao_kernel.model import Replica

ONE, TWO = Replica("worker", 0), Replica("worker", 1)
BAR = "━" * 20


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


def test_two_counters_in_brackets_are_epoch_and_step() -> None:
    dcgan = [f"[{e}/3][{n}/100]\tLoss_D: {e + n}" for e in range(3) for n in (0, 50, 99)]
    points = curve(*dcgan, wish="loss_d")
    assert [y for _, y in points] == [0, 50, 99, 1, 51, 100, 2, 52, 101]
    assert [x for x, _ in points] == [0, 50, 99, 100, 150, 199, 200, 250, 299]


def test_steps_of_settings_do_not_move_a_training_with_epochs() -> None:
    lines = ["Namespace(steps=1000, lr=0.1)", "Epoch 1 loss 3 lr 0.1", "Epoch 2 loss 2 lr 0.1"]
    assert curve(*lines) == [(1, 3), (2, 2)]


def test_steps_that_count_from_0_in_each_epoch_lose_none() -> None:
    one_each = [f"Epoch {e}, Batch 0, Loss: {9 - e}" for e in range(8)]
    assert curve(*one_each) == [(e, 9 - e) for e in range(8)]
    some = [f"Epoch {e} | Iter {n} | Train Loss {9 - e}" for e in (0, 1, 2) for n in (0, 100)]
    assert curve(*some) == [(0, 9), (100, 9), (101, 8), (201, 8), (202, 7), (302, 7)]
    assert curve(*some, *some) == curve(*some)
    assert curve(*some[2:], *some) == curve(*some)  # begun again, further back
    total = [f"Epoch {e} [{n}/100] loss {n}" for e in (0, 1) for n in (0, 64)]
    assert curve(*total) == [(0, 0), (64, 64), (100, 0), (164, 64)]
    custom = [
        line
        for e in (0, 1)
        for line in (
            f"Start of epoch {e}",
            *(f"Training loss (for 1 batch) at step {n}: {n - e}.0" for n in (0, 100)),
            "Training acc over epoch: 0.7886",
        )
    ]
    assert curve(*custom) == [(0, 0), (100, 100), (101, -1), (201, 99)]


def test_the_epoch_of_a_line_is_the_one_that_runs() -> None:
    lines = [f"epoch {e} loss {1 / e} (best epoch 1)" for e in (1, 2, 3, 4)]
    assert curve(*lines) == [(e, 1 / e) for e in (1, 2, 3, 4)]


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


@pytest.mark.parametrize("head", ["", "Epoch 2/3\n", "Epoch 0: 10%|#| "])
def test_an_unfinished_bar_is_drawn_and_comes_again_whole(head: str) -> None:
    metrics = Metrics(("loss",))
    if head.endswith("\n"):
        metrics.add(ONE, head.encode())
        head = ""
    bar = [f"{head}{n}/30 [00:01<00:00, 15.1it/s, loss={n}]" for n in (10, 20, 30)]

    def points() -> list[tuple[float, float]]:
        series = metrics.curves["loss"].get(ONE, Series())
        return list(zip(series.x, series.y, strict=True))

    assert not metrics.peek(ONE, bar[0].encode())  # it may be cut off
    assert metrics.peek(ONE, "\r".join(bar).encode())
    assert points() == [(20, 20)]
    assert metrics.peek(ONE, ("\r".join(bar) + "\r").encode())
    assert points() == [(20, 20), (30, 30)]
    assert metrics.add(ONE, "\r".join(bar).encode() + b"\n")
    assert points() == [(10, 10), (20, 20), (30, 30)]
    assert not metrics.add(ONE, b"done\n")


def test_a_bar_that_is_cut_off_for_ever_leaves_what_was_before() -> None:
    metrics = Metrics(("loss",))
    metrics.add(ONE, b"step 5 loss 1\n")
    assert metrics.peek(ONE, b"\rstep 2 loss 3\rstep")
    assert metrics.curves["loss"][ONE].x == [2]
    assert metrics.add(ONE, b"step 2 loss 3 \x1b[2K\rstopped: loss unknown\n")
    assert metrics.curves["loss"][ONE].x == [2]
    metrics.peek(TWO, b"\rstep 2 loss 3\rstep")
    assert metrics.add(TWO, b"nothing\n")
    assert metrics.missing == ()
    assert list(metrics.curves["loss"]) == [ONE]


def test_a_wish_for_loss_is_one_for_training_loss() -> None:
    assert curve("step 1 train_loss=3 val_loss=4") == [(1, 3)]
    assert curve("step 1 train/loss=3 loss=5") == [(1, 5)]
    metrics = Metrics(("Validation/Loss",))
    metrics.add(ONE, b"step 1 train loss 3, val loss 4\n")
    assert metrics.curves["val_loss"][ONE].y == [4]


def test_a_curve_has_one_name() -> None:
    run = ["{'loss': 2.0, 'epoch': 1.0}", "{'loss': 0.2, 'epoch': 2.0}"]
    whole = "{'train_runtime': 10.0, 'train_loss': 1.07, 'epoch': 2.0}"
    assert curve(*run, whole) == [(1, 2), (2, 0.2)]
    # What one line of prose says does not keep the others out.
    assert curve("Start of training, loss 9", "step 1 loss 3", "step 2 loss 2") == [(1, 3), (2, 2)]
    assert curve("step 1 train_loss 3", "step 2 train_loss 2", "Final loss: 7") == [(1, 3), (2, 2)]
    assert curve("learning rate: 0.1", "learning rate: 0.2", wish="learning_rate")[1] == (2, 0.2)


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


def bar(head: str, total: int, loss: float) -> str:
    parts = (f"{head}{n}/{total} {BAR} - loss: {loss - n / total:.3f}" for n in range(1, total + 1))
    return "\r".join(parts) + "\n"


RUN = "".join(f"Epoch {e}/3\n\r{bar('', 5, 9 - e)}{bar('Val: ', 3, 20 - e)}" for e in (1, 2, 3))
RUN += bar("", 4, 99)


@given(st.lists(st.integers(0, len(RUN.encode())), max_size=30))
def test_a_curve_does_not_hang_on_how_lines_arrive(cuts: list[int]) -> None:
    metrics, data, begin = Metrics(("loss", "val_loss")), RUN.encode(), 0
    for cut in sorted({*cuts, len(data)}):
        end = max(begin, data.rfind(b"\n", begin, cut) + 1)
        if end > begin:
            metrics.add(ONE, data[begin:end])
        metrics.peek(ONE, data[end:cut])
        begin = end
    loss, val_loss = (metrics.curves[wish][ONE] for wish in ("loss", "val_loss"))
    assert loss.x == list(range(1, 16))
    assert (val_loss.x, val_loss.y) == ([5, 10, 15], [18, 17, 16])
