"""Curves: they stay small and as fine at their start as at their end; and where points stand."""

from __future__ import annotations

import itertools
import math
from bisect import bisect_right

from hypothesis import given
from hypothesis import strategies as st

from ciao_kernel.display.plot.metrics import Metrics
from ciao_kernel.display.plot.series import MAX_POINTS, Series
from ciao_kernel.model import Replica

ONE = Replica("worker", 0)
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


@given(st.lists(st.tuples(st.integers(0, 50), FLOATS), max_size=100), st.integers(16, 24))
def test_places_only_grow(points: list[tuple[int, float]], limit: int) -> None:
    series = Series(limit)
    for x, y in points:
        series.add(x, y)
        assert series.x == sorted(set(series.x))
        assert (series.x[-1], str(series.y[-1])) == (x, str(y))
        assert len(series.x) <= limit


def course(step: int) -> float:
    """A loss that falls, with a bump in its middle."""
    bump = math.exp(-(((step - 9_000) / 600) ** 2))
    return 2 * math.exp(-step / 4_000) + 0.3 + bump


def test_a_long_curve_is_as_fine_at_its_start_as_at_its_end() -> None:
    for steps in (2_000, 20_000, 100_000):
        series = Series()
        for step in range(steps):
            series.add(step, course(step))
        assert MAX_POINTS / 3 < len(series.x) <= MAX_POINTS
        tenths = [0] * 10
        for x in series.x:
            tenths[int(10 * x / steps)] += 1
        assert max(tenths) < 3 * min(tenths)
        assert max(b - a for a, b in itertools.pairwise(series.x)) < steps / 80


def test_a_bump_of_a_long_curve_is_drawn() -> None:
    series = Series()
    for step in range(20_000):
        series.add(step, course(step))
    for step in range(0, 20_000, 100):
        right = bisect_right(series.x, step)
        x0, x1 = series.x[right - 1], series.x[min(right, len(series.x) - 1)]
        y0, y1 = series.y[right - 1], series.y[min(right, len(series.x) - 1)]
        drawn = y0 + (y1 - y0) * (step - x0) / (x1 - x0) if x1 > x0 else y0
        assert abs(drawn - course(step)) < 0.03


def test_a_coarser_copy_is_another_curve() -> None:
    series = Series()
    for step in range(400):
        series.add(step, math.sin(step))
    coarse = series.copy(100)
    assert len(coarse.x) <= 100
    assert (min(coarse.y), max(coarse.y)) == (min(series.y), max(series.y))
    coarse.add(1_000, 0)
    assert series.x == list(range(400))
    assert series.copy(1_000).x == series.x


def test_points_that_come_again_leave_the_history_as_fine() -> None:
    said_twice = [step for step in range(5_000) for _ in range(2)]
    repeated = [start + step for start in range(0, 10_000, 10) for step in range(12)]
    by_epoch = [epoch for epoch in range(2_000) for _ in range(10)]
    for places in (said_twice, repeated, by_epoch):
        series = Series()
        for place in places:
            series.add(place, course(place))
        assert MAX_POINTS / 3 < len(series.x) <= MAX_POINTS
        tenths = [0] * 10
        for x in series.x:
            tenths[min(9, int(10 * x / series.x[-1]))] += 1
        assert max(tenths) < 3 * min(tenths)


def test_what_was_thinned_stays_when_the_training_goes_back() -> None:
    series = Series()
    for step in range(20_000):
        series.add(step, course(step))
    before = [x for x in series.x if x < 9_000]
    for step in range(9_000, 9_500):
        series.add(step, course(step))
    kept = [x for x in series.x if x < 9_000]
    assert set(kept) <= set(before)
    assert len(before) - len(kept) <= 3


def test_epochs_that_count_from_0_are_as_fine_at_their_start() -> None:
    lines = [
        f"epoch {epoch} step {step} loss 1" for epoch in range(300) for step in range(0, 99, 9)
    ]
    (loss,) = curves(*lines, wishes=("loss",))
    assert MAX_POINTS / 3 < len(loss) <= MAX_POINTS
    halfway = loss[-1][0] / 2
    assert 0.4 < sum(x < halfway for x, _ in loss) / len(loss) < 0.6


def test_memory_is_bounded() -> None:
    metrics = Metrics(("loss",))
    for start in range(0, 100_000, 1000):
        lines = (f"step {step} loss {step}" for step in range(start, start + 1000))
        metrics.add(ONE, "\n".join(lines).encode())
    series = metrics.curves["loss"][ONE]
    assert MAX_POINTS / 3 < len(series.x) <= MAX_POINTS
    assert (series.x[0], series.x[-1]) == (0, 99_999)


# --------------------------------------------------------------------- loops over other data

Points = list[tuple[float, float]]


def curves(*lines: str, wishes: tuple[str, ...] = ("loss", "val_loss")) -> list[Points]:
    metrics = Metrics(wishes)
    for line in lines:
        metrics.add(ONE, f"{line}\n".encode())
    found = (metrics.curves[wish].get(ONE, Series()) for wish in wishes)
    return [list(zip(series.x, series.y, strict=True)) for series in found]


def bar(name: str, total: int, *points: tuple[int, float]) -> list[str]:
    return [f"{name}: 50%|██ | {n}/{total} [00:01<00:00, 9.1it/s, loss={y}]" for n, y in points]


TRAINED = [(50, 3), (100, 2.5), (150, 2), (200, 1.5), (250, 1), (300, 0.5)]


def test_a_validation_stands_where_the_training_is() -> None:
    for before in (["Epoch {}/3"], []):
        lines = []
        for epoch in (1, 2, 3):
            lines += [line.format(epoch) for line in before]
            lines += bar("Train", 100, (50, 4 - epoch), (100, 3.5 - epoch))
            lines += bar("Validation", 30, (15, 8), (30, epoch))
        loss, val_loss = curves(*lines)
        assert loss == TRAINED
        assert val_loss == [(100, 1), (200, 2), (300, 3)]
        assert curves(*lines, wishes=("loss",)) == [loss]


def test_a_validation_in_words_does_not_begin_the_training_again() -> None:
    lines = []
    for epoch in (1, 2, 3):
        lines += [f"Epoch {epoch} step {step} loss {epoch}" for step in (50, 100)]
        lines += [f"Epoch {epoch} step {step} val_loss {step}" for step in (5, 10)]
    loss, val_loss = curves(*lines)
    assert loss == [(50, 1), (100, 1), (150, 2), (200, 2), (250, 3), (300, 3)]
    assert val_loss == [(100, 10), (200, 10), (300, 10)]


def test_a_validation_that_counts_the_training_s_steps_stands_there() -> None:
    lines = [
        f"step {step} {'val_loss' if step % 50 == 0 else 'loss'} 1" for step in range(0, 99, 5)
    ]
    loss, val_loss = curves(*lines)
    assert [x for x, _ in val_loss] == [0, 50]
    assert len(loss) == 18


def test_a_validation_alone_has_steps_of_its_own() -> None:
    lines = [one for _ in range(3) for one in bar("Validation", 30, (15, 8), (30, 7))]
    assert [x for x, _ in curves(*lines)[1]] == [15, 30, 45, 60, 75, 90]
    assert [x for x, _ in curves("Epoch 1/1", *lines)[1]] == [15, 30, 45, 60, 75, 90]
    evaluator = [f"eval step {step}: loss {step}" for step in (100, 200)]
    assert curves(*evaluator, wishes=("eval_loss",)) == [[(100, 100), (200, 200)]]


def test_a_summary_without_a_step_stands_where_the_training_is() -> None:
    mnist = []
    for epoch in (1, 2):
        mnist += [f"Train Epoch: {epoch} [{n}/100 (1%)]\tLoss: {n}" for n in (0, 64)]
        mnist += [f"Test set: Average loss: {epoch}, Accuracy: 90/100 (90%)"]
    loss, test_loss = curves(*mnist, wishes=("loss", "test_loss"))
    assert loss == [(0, 0), (64, 64), (100, 0), (164, 64)]
    assert test_loss == [(64, 1), (164, 2)]


def test_a_summary_that_does_not_say_of_what_leaves_the_training_s_points() -> None:
    quickstart = []
    for epoch in (1, 2):
        quickstart += [f"Epoch {epoch}", "-----"]
        quickstart += [f"loss: {n}.5  [{n:>5}/100]" for n in (64, 96)]
        quickstart += ["Test Error: ", " Accuracy: 45.0%, Avg loss: 9.9"]
    loss, accuracy = curves(*quickstart, wishes=("loss", "accuracy"))
    assert loss == [(64, 64.5), (96, 96.5), (164, 64.5), (196, 96.5)]
    assert accuracy == [(96, 45), (196, 45)]
    imagenet = ["Epoch: [0][ 10/20]\tAcc@1  50.00 ( 40.00)", " *   Acc@1 55.102 Acc@5 80.0"]
    assert curves(*imagenet, wishes=("acc_1", "acc_5")) == [[(10, 50)], [(10, 80)]]


def test_an_epoch_without_steps_shows_its_newest_value() -> None:
    (loss, _) = curves("step 0 loss 5", "Epoch 1 loss 3", "Epoch 2 loss 2")
    assert loss == [(0, 2)]


def test_a_summary_of_a_validation_is_its_last_value() -> None:
    lines = [*bar("Train", 100, (100, 2)), *bar("Validation", 30, (30, 5)), "val_loss: 4"]
    assert curves(*lines) == [[(100, 2)], [(100, 4)]]


def keras(epoch: int, total: int, *points: tuple[int, float]) -> list[str]:
    return [f"Epoch {epoch}/2", *(f"{n}/{total} ━━━ 1s 5ms/step - loss: {y}" for n, y in points)]


def test_an_evaluation_behind_the_last_epoch_is_no_training() -> None:
    fit = [*keras(1, 60, (30, 4), (60, 3)), *keras(2, 60, (30, 2), (60, 1))]
    trained = [(30, 4), (60, 3), (90, 2), (120, 1)]
    assert curves(*fit)[0] == trained
    saved = "Epoch 2: val_loss improved from inf to 0.31, saving model to best.keras"
    for total in (10, 60, 70):
        evaluate = keras(0, total, (5, 9), (total, 9))[1:]
        assert curves(*fit, *evaluate)[0] == trained
        assert curves(*fit, saved, *evaluate)[0] == trained
        # The next fit begins at the first epoch: it draws over what was.
        again = curves(*fit, *evaluate, *keras(1, 80, (9, 7)), *keras(2, 80, (9, 6)))
        assert again[0] == [(9, 7), (89, 6)]


def test_a_loop_in_the_middle_of_an_epoch_does_not_end_it() -> None:
    lines = [*keras(1, 60, (30, 4)), *keras(1, 9, (9, 8))[1:], *keras(1, 60, (40, 3), (60, 2))[1:]]
    assert curves(*lines)[0] == [(30, 4), (40, 3), (60, 2)]


def test_bars_without_an_epoch_follow_each_other() -> None:
    lines = [f"{n}/{total} [loss={n}]" for total in (20, 8, 20) for n in (4, 8)]
    assert [x for x, _ in curves(*lines)[0]] == [4, 8, 24, 28, 32, 36]
