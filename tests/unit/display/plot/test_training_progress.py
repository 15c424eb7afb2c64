"""How far a training is, by its lines: logs that were recorded with the time of each piece."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from ciao_kernel.delivery.warm.zygote.marked_lines import _Marked
from ciao_kernel.display.plot.replica_progress import ReplicaProgress
from ciao_kernel.display.plotting import progress_of, read_progress
from ciao_kernel.display.table import Table
from ciao_kernel.display.training_text import progress_text
from ciao_kernel.model import Job, Output, Replica, State, Status
from ciao_kernel.model.progress import Done, best_known

RECORDED = Path(__file__).parent / "recorded"
"""Real output of real programs: seconds and text of each piece, one a line."""
WORKER, OTHER, PS = Replica("worker", 0), Replica("worker", 1), Replica("ps", 0)
MOST = 0.10

Pieces = Iterable[tuple[float, str]]


def replay(
    pieces: Pieces, age: float = 0.0, replica: Replica = WORKER
) -> Iterator[tuple[float, Done]]:
    """Yield the time of each piece, and what is known then."""
    now = [0.0]
    job = Job("mine", "fake", "python", (WORKER, OTHER, PS), time.time() - age)
    progress = progress_of(job, lambda: now[0])
    rest = b""
    for seconds, text in pieces:
        now[0] = seconds
        whole, end, rest = (rest + text.encode()).rpartition(b"\n")
        progress.output(Output(replica, whole + end, whole.count(b"\n") + len(end), rest))
        if done := progress.done():
            yield seconds, done


def recorded(name: str) -> list[tuple[float, str]]:
    lines = (RECORDED / f"{name}.jsonl").read_text().splitlines()
    return [(seconds, text) for seconds, text in map(json.loads, lines)]


def lightning(bar: str, epochs: int = 4, steps: int = 50) -> list[tuple[float, str]]:
    """Bars as Lightning's documentation shows them, half a second a step."""
    texts = [
        (epoch, step, bar.format(epoch=epoch, last=epochs - 1, step=step, steps=steps))
        for epoch in range(epochs)
        for step in range(steps + 1)
    ]
    found = []
    for epoch, step, text in texts:
        now = (epoch * (steps + 2) + step) / 2
        found.append((now, f"\r{text}"))
        if step == steps:
            bar = "Validation DataLoader 0:  50%|███  | {}/4 [00:00<00:00, 9it/s]"
            found += [(now + n / 4, "\r" + bar.format(n)) for n in range(5)]
    return found


def trainer(steps: int = 400) -> list[tuple[float, str]]:
    """The bar of a Trainer, the numbers that it logs, and an evaluation in between."""
    found, now = [], 0.0
    for step in range(steps + 1):
        now += 0.1
        found.append(
            (now, f"\r {step * 100 // steps}%|█▏      | {step}/{steps} [00:12<01:30, 9it/s]")
        )
        if step % 50 == 49:
            found.append((now, f"\n{{'loss': 0.5, 'lr': 1e-05, 'epoch': {step / 100}}}\n"))
            found += [(now + n / 50, f"\r {n * 10}%|█▏  | {n}/10 [00:00<00:01]") for n in range(11)]
            now += 0.2
    return found


RICH = "Epoch {epoch}/{last} ━━━━━━━ {step}/{steps} 0:00:10 • 0:00:10 4.9it/s v_num: 0 loss: 0.3"


SANITY = [(n / 9, f"\rSanity Checking DataLoader 0: {n}|██ | {n}/2 [00:00]") for n in range(3)]
TRAININGS = [
    *(recorded(path.stem) for path in sorted(RECORDED.glob("*.jsonl"))),
    lightning(RICH),
    trainer(),
]


def marked(pieces: Pieces, number: str) -> Pieces:
    """Return what one of several processes of a replica writes."""
    file, last = io.BytesIO(), list[_Marked]()
    stream = _Marked(SimpleNamespace(buffer=file, encoding="utf-8", errors=None), last)  # type: ignore[arg-type]
    stream.mark = f"[{number}] "
    for seconds, text in pieces:
        before = len(file.getvalue())
        stream.write(text)
        stream.flush()
        yield seconds, file.getvalue()[before:].decode()


@pytest.mark.parametrize("pieces", [*TRAININGS, [*SANITY, *trainer()], SANITY])
@pytest.mark.parametrize("number", ["0", "1", "12"])
def test_the_number_of_a_process_changes_nothing(pieces: Pieces, number: str) -> None:
    assert list(replay(marked(pieces, number))) == list(replay(pieces))


@pytest.mark.parametrize(
    "pieces",
    TRAININGS,
    ids=[*(path.stem for path in sorted(RECORDED.glob("*.jsonl"))), "lightning", "trainer"],
)
def test_the_end_is_foretold_after_a_tenth_of_the_work(pieces: Pieces) -> None:
    known = list(replay(pieces))
    begin = known[0][0]
    end = next((now for now, done in known if done.share >= 1), known[-1][0])
    told = [(now, done.left) for now, done in known if done.share >= 0.1 and done.left is not None]
    assert len(told) > 10
    wrong = [(now + left - end) / (end - begin) for now, left in told if now <= end]
    print(f"{min(wrong):+.1%} … {max(wrong):+.1%} of {end - begin:.0f} s")
    assert max(map(abs, wrong)) < MOST
    assert [done.share for _, done in known] == sorted(done.share for _, done in known)


def test_a_bar_of_an_epoch_tells_no_end_of_the_training() -> None:
    bar = "Epoch {epoch}:  50%|█████     | {step}/{steps} [00:10<00:10,  4.9it/s, v_num=0]"
    known = dict(replay(lightning(bar)))
    done = known[41.0]
    assert (done.of_epoch, done.epoch, done.share, done.left) == (True, 1, 0.6, 10.0)
    assert progress_text(done) == "━━━━━━━───── 60 % of epoch 1 (step 30/50), ≈ 10s left"


def test_a_loop_that_begins_again_is_not_the_training() -> None:
    pieces = [(float(n), f"\r{n % 10}/9 [00:00<00:01]") for n in range(40)]
    assert [done.of_epoch for _, done in replay(pieces)][:20] == [False] * 10 + [True] * 10


def test_old_lines_of_an_attached_job_tell_no_speed() -> None:
    old = [(0.01 * n, f"step {n}/1000 loss 1\n") for n in range(500)]
    new = [(5.0 + n, f"step {500 + n}/1000 loss 1\n") for n in range(1, 100)]
    known = list(replay([*old, *new], age=3600.0))
    told = [(now, done.left) for now, done in known if done.left is not None]
    assert told[0][0] > 5.0
    assert all(left == pytest.approx(505 - now, rel=0.02) for now, left in told)


def test_many_lines_at_once_do_not_hide_an_epoch() -> None:
    lines = "".join(f"Epoch {n}/9\n" + "noise 1/2\n" * 50 for n in (1, 2, 3))
    ((_, done),) = replay([(1.0, lines)])
    assert done.epoch == 3


def test_a_ps_tells_nothing_and_the_slowest_worker_counts() -> None:
    assert not list(replay([(1.0, "step 5/10\n")], replica=PS))
    job = Job("mine", "fake", "python", (WORKER, OTHER, PS), time.time())
    progress = progress_of(job, lambda: 1.0)
    for replica, step in ((WORKER, 80), (OTHER, 20)):
        progress.output(Output(replica, f"step {step}/100\n".encode(), 1))
    done = progress.done()
    assert done
    assert done.step == 20


def test_other_numbers_are_no_progress() -> None:
    noise = "2026/11/24 10:00:00 loss 0.3\nAccuracy: 9900/10000 (99%)\nval 3/10\nhttp://a/1/2\n"
    assert not list(replay([(float(n), noise) for n in range(10)]))


def test_a_log_without_times() -> None:
    logs = [b"Epoch 1/4\nEpoch 2/4\n50/100 loss 1\n", b"no numbers\n"]
    done = read_progress(logs, seconds=30.0)
    assert done == Done(0.375, pytest.approx(50.0), 50, 100, 2, 4)
    assert read_progress([b"", b"x"], 1.0) is None


def test_a_log_whose_bar_begins_again_in_each_epoch_tells_no_time() -> None:
    done = read_progress([b"8/10\n9/10\n10/10\n1/10\n5/10\n"], seconds=30.0)
    assert done == Done(0.5, None, 5, 10, of_epoch=True)


def test_the_text_of_a_bar() -> None:
    assert progress_text(Done(0.45, 200.0, 25, 100, 3, 5)) == (
        "━━━━━─────── 45 % (epoch 3/5, step 25/100), ≈ 3m 20s left"
    )
    assert progress_text(Done(0.0, None, None, None, 1, 5)) == "──────────── 0 % (epoch 1/5)"


def test_the_table_shows_what_the_job_has_told_where_its_lines_do_not() -> None:
    table = Table(Job("mine", "fake", "python", (WORKER,), time.time()), clock=lambda: 1.0)
    told = Status(State.RUNNING, (), told=Done(0.45, 90.0))
    table.status = replace(told, told=None)
    assert table.title() == "mine: Running"
    table.status = told
    assert table.title() == "mine: Running  ━━━━━─────── 45 %, ≈ 1m 30s left"
    table.output(Output(WORKER, b"step 20/100\n", 1))
    assert table.title() == "mine: Running  ━━────────── 20 % (step 20/100)"
    table.status = replace(told, state=State.SUCCEEDED)
    assert table.title() == "mine: Succeeded"


def test_the_end_of_the_training_comes_before_that_of_an_epoch() -> None:
    epoch, whole = Done(0.9, of_epoch=True), Done(0.2)
    assert best_known(epoch, None) == epoch
    assert best_known(epoch, whole) == whole
    assert best_known(None, None) is None


@pytest.mark.parametrize(
    "before", [["[1/4] Loading", "[2/4] Building", "[3/4] Training"], ["best lr: 84% 84/100"]]
)
def test_a_preparation_that_was_not_finished_does_not_hide_the_training(before: list[str]) -> None:
    lines = [*before, *(f"step {step}/1000 loss 0.5" for step in range(10, 910, 10))]
    known = [done for _, done in replay((float(n), f"{line}\n") for n, line in enumerate(lines))]
    assert known[-1].share == pytest.approx(0.9)
    assert known[-1].step == 900


def bar(step: int, steps: int, head: str = "") -> str:
    return f"\r{head}{step * 100 // steps:3d}%|███   | {step}/{steps} [00:12<01:30,  9.38it/s]"


def timed(*bars: tuple[str, int, int], every: float = 0.3) -> list[tuple[float, str]]:
    """Bars one after another, each with its text, its last step and its total."""
    states = [bar(step, steps, head) for head, last, steps in bars for step in range(last + 1)]
    return [(number * every, state) for number, state in enumerate(states)]


def test_the_percent_of_a_bar_is_not_the_epoch_that_its_text_announces() -> None:
    done = list(replay(timed(("Epoch: ", 6, 10), every=1.0)))[-1][1]
    assert progress_text(done) == "━━━━━━━───── 60 % (step 6/10), ≈ 4s left"


def test_an_evaluation_longer_than_the_training_ends_with_the_training_in_view() -> None:
    pieces, now = [], 0.0
    for step in range(1, 401):
        now += 0.5
        pieces.append((now, bar(step, 400)))
        for state in range(1, 501) if step in (100, 200, 300) else ():
            now += 0.1
            pieces.append((now, bar(state, 500)))
    known = list(replay([*pieces, (now + 1, "\n")]))
    # Nothing tells whether the first longer bar is the training.
    apart = [(now, done) for now, done in known if done.steps == 500]
    assert all(done.of_epoch for _, done in apart)
    assert {int(now // 50) for now, _ in apart} == {1}
    training = [done for _, done in known if done.steps == 400]
    assert [done.share for done in training] == sorted(done.share for done in training)
    assert not any(done.of_epoch for done in training)
    # The time of an evaluation counts: it comes again.
    left = next(done.left for now, done in known if done.step == 250)
    assert left == pytest.approx(now - 225, rel=0.3)


@pytest.mark.parametrize("end", ["\n", "\x1b[A"])
def test_the_inner_of_two_bars_does_not_replace_the_outer(end: str) -> None:
    pieces, now = [(0.0, bar(0, 3))], 0.0
    for epoch in range(1, 4):
        for step in range(41):
            now += 1.0
            pieces.append((now, f"\n{bar(step, 40)}{end}"))
        pieces.append((now + 0.5, bar(epoch, 3)))
    known = dict(replay(pieces))
    assert progress_text(known[20.0]).startswith("━━━━━─────── 47 % of a loop (step 19/40)")
    for now in (60.0, 80.0):
        assert progress_text(known[now]) == "━━━━──────── 33 % (step 1/3)"
    assert known[120.0].step == 2
    assert known[123.5].share == 1.0


def test_another_bar_of_the_length_of_a_preparation_does_not_return_to_it() -> None:
    lines = ["best lr: 84% 84/100"]
    for step in range(1, 901):
        lines.append(f"step {step}/1000 loss 0.5")
        lines += [f"{n}/100 [00:01<00:00]" for n in range(1, 101)] if step == 450 else []
    known = [done for _, done in replay((float(n), f"{line}\n") for n, line in enumerate(lines))]
    assert known[-1].step == 900


@pytest.mark.parametrize("others", [40, 200])
def test_a_second_bar_of_an_epoch_is_not_the_training(others: int) -> None:
    pieces: list[tuple[float, str]] = []
    for epoch in (1, 2, 3):
        begin = pieces[-1][0] + 0.3 if pieces else 0.0
        bars = timed(("", 100, 100), ("", others, others))
        pieces += [(begin, f"\nEpoch {epoch}/3\n"), *((begin + now, text) for now, text in bars)]
    known = list(replay(pieces))
    shares = [done.share for _, done in known]
    assert shares == sorted(shares)
    assert {done.steps for _, done in known} == {None, 100}


def test_an_epoch_that_is_opened_again_has_a_bar_of_another_length() -> None:
    pieces = [(0.0, "Epoch 1/1\n"), *timed(("", 100, 100)), (40.0, "\nEpoch 1/1\n")]
    later = [(41.0 + now, text) for now, text in timed(("", 30, 60))]
    known = list(replay([*pieces, *later]))
    assert (known[-1][1].step, known[-1][1].share) == (30, 0.5)


@pytest.mark.parametrize("ticks", range(50, 56))
@pytest.mark.parametrize("total", [1250, 20_000])
def test_the_last_state_of_a_preparation_is_read_however_soon_it_comes(
    ticks: int, total: int
) -> None:
    pieces = [(n / 10, bar(10_000 * n // ticks, 10_000, "Map: ")) for n in range(ticks + 1)]
    begin = pieces[-1][0]
    pieces.append((begin + 0.001, f"\n{bar(0, total)}"))
    pieces += [(begin + n * 0.3, bar(n * total // 100, total)) for n in range(1, 51)]
    known = [done for now, done in replay(pieces) if now > begin + 1]
    assert (known[-1].steps, known[-1].step) == (total, total // 2)
    assert not any(done.of_epoch for done in known)


@pytest.mark.parametrize("back", [0, 450])
def test_a_training_that_returns_to_a_checkpoint_is_not_a_loop(back: int) -> None:
    steps = [*range(1, 500), *range(back, 700)]
    known = replay((float(n), f"step {step}/1000 loss 0.5\n") for n, step in enumerate(steps))
    done = [done for _, done in known]
    assert not any(one.of_epoch for one in done)
    assert done[-1].step == 699


def test_a_loop_of_which_few_steps_are_told_is_one() -> None:
    steps = [50, 100] * 3
    known = replay((float(n), f"{step}/120 loss 0.5\n") for n, step in enumerate(steps))
    assert [done.of_epoch for _, done in known] == [False, False, True, True, True, True]


def test_a_loop_whose_ends_are_not_read_is_one_after_a_few_rounds() -> None:
    """A round of 0.4 s, and a reading in 0.25 s."""
    bars = ((n * 0.01, f"\r {n % 40 + 1}/40 [00:00<00:00]") for n in range(40 * 100))
    known = [done for _, done in replay(bars)]
    assert all(done.of_epoch for done in known[len(known) // 5 :])


def test_an_evaluation_behind_the_training_is_one_of_a_loop() -> None:
    train, evaluation = timed(("", 100, 100)), timed(("", 10, 10))
    half = [*train[:51], *((15.0 + now, text) for now, text in evaluation)]
    whole = [*half, *((4.0 + now, text) for now, text in train[51:])]
    known = dict(replay([*whole, *((40.0 + now, text) for now, text in evaluation)]))
    assert known[40.6].of_epoch
    assert not any(done.of_epoch for now, done in known.items() if now < 40)


def test_processes_of_a_replica_that_are_nearly_even_are_no_loop() -> None:
    lines = (f"[{n % 2}] {n // 2 - n % 2}/100 loss 0.5\n" for n in range(2, 200))
    assert not any(done.of_epoch for _, done in replay((float(n), x) for n, x in enumerate(lines)))


def test_a_bar_from_before_the_first_epoch_does_not_stay() -> None:
    download = timed(("Downloading: ", 45, 100))
    begin = download[-1][0] + 1
    epoch = [(begin + now, text) for now, text in timed(("", 50, 200))]
    known = list(replay([*download, (begin, "\nEpoch 1/2\n"), *epoch]))
    assert (known[-1][1].step, known[-1][1].steps) == (50, 200)
    assert known[-1][1].share == pytest.approx(0.125)


LOADED = [(n * 0.01, bar(n, 4, "Loading checkpoint shards: ")) for n in range(5)]
"""The bar of a preparation; its last state comes too soon to be read."""


def logged(first: int, last: int, begin: float = 1.0) -> list[tuple[float, str]]:
    """Lines of a training without a total, one a second."""
    return [(begin + n - first, f"step {n} loss 0.5\n") for n in range(first, last)]


def test_the_ended_bar_of_a_preparation_does_not_stay_over_steps_without_a_total() -> None:
    pieces = [*LOADED, (0.5, "\n"), *logged(1, 20)]
    known = dict(replay(pieces))
    assert max(known) == 2.0
    at_once = [*LOADED, (1.0, "\nstep 1\nstep 2\nstep 3\n")]
    assert max(dict(replay(at_once))) < 1.0
    log = "".join(text for _, text in pieces).encode()
    assert read_progress([log], 30.0) is None


def test_an_ended_bar_stays_over_lines_that_are_no_steps_of_a_training() -> None:
    bars = timed(("", 100, 100))
    later = ["saved at step 100", "step 100 loss 0.5", "val step 101", "val step 102", "step 12 x"]
    known = list(replay([*bars, (40.0, "\n"), *((41.0, f"{one}\n") for one in later)]))
    assert known[-1][0] == 41.0
    assert known[-1][1].share == 1.0


def test_lines_behind_an_ended_bar_are_read_no_longer_when_none_has_a_new_step() -> None:
    """A thousand replicas may write such lines for hours."""
    known = ReplicaProgress()
    known.add("4/4 [00:01<00:00]", 0.0)
    found = [known.add_later([b"validation step 7"], 0.0) for _ in range(99)]
    assert not any(found)
    assert known.may_have_ended
    assert not known.add_later([b"validation step 7"], 0.0)
    assert not known.may_have_ended
    known.add("1/8", 0.0)
    known.add("8/8", 0.0)  # another bar, and behind it the training
    assert known.may_have_ended
    assert [known.add_later([f"step {n}".encode()], 0.0) for n in (1, 2, 3)] == [True] * 3
    assert known.done(0.0) is None


@pytest.mark.parametrize(("others", "forgotten"), [(1, True), (2, False)])
def test_few_lines_of_an_event_are_read_in_search_of_a_training(
    others: int, forgotten: bool
) -> None:
    event = "iteration took 2 s\n" * others + "step 1\nstep 2\nstep 3\n"
    assert (max(dict(replay([*LOADED, (1.0, f"\n{event}")]))) < 1.0) == forgotten


def test_a_bar_that_goes_on_beside_lines_with_steps_stays() -> None:
    pieces = [
        piece
        for n in range(1, 30)
        for piece in ((n + 0.0, bar(n, 40)), (n + 0.5, f"\rstep {n} loss 0.5\n"))
    ]
    assert list(replay(pieces))[-1][1].step == 29


def test_an_evaluation_of_a_training_without_a_total_is_a_loop_as_soon_as_it_comes_again() -> None:
    evaluation = timed(("", 10, 10), every=1.0)
    first = [(20.0 + now, text) for now, text in evaluation]
    second = [(60.0 + now, text) for now, text in evaluation]
    known = dict(replay([*first, (35.0, "\n"), *logged(1, 9, 36.0), *second]))
    assert {now for now in known if 38 <= now < 60} == set()
    assert {done.of_epoch for now, done in known.items() if now > 60} == {True}
    assert max(known) == 69.0  # the end of a bar that was forgotten tells nothing


def test_the_bar_of_a_preparation_is_known_by_the_replica_that_logs_the_steps() -> None:
    now = [0.0]
    progress = progress_of(Job("mine", "fake", "python", (WORKER, OTHER), 0.0), lambda: now[0])
    for replica in (WORKER, OTHER):
        progress.output(Output(replica, b"4/4 [00:01<00:00]\n", 1))
    assert progress.done()
    for n in (1, 2, 3):
        now[0] += 1
        progress.output(Output(WORKER, f"step {n} loss 0.5\n".encode(), 1))
    assert progress.done() is None
    assert read_progress([b"4/4\nstep 1\nstep 2\nstep 3\n", b"4/4\n"], 30.0) is None


def test_a_number_of_epochs_is_that_also_where_they_count_from_0() -> None:
    pieces = [
        (float(e * 100 + n), f"[{e}/5][{n}/100]\tLoss_D: 1\n") for e in range(5) for n in range(100)
    ]
    known = dict(replay(pieces))
    assert (known[250.0].share, known[250.0].epoch) == (0.5, 2)
    assert known[499.0].share == pytest.approx(0.998)
