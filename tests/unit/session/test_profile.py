"""Samples of many processes as one tree, as a picture and a text, and the verdict about them."""

from __future__ import annotations

import itertools
import json
import random
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterator
from dataclasses import asdict

import pytest

from ciao_kernel.delivery.inspection import answers
from ciao_kernel.display import flame
from ciao_kernel.model import Job, Profile, Replica
from ciao_kernel.model.profile import CallTree
from ciao_kernel.model.stacks import (
    Answer,
    Frame,
    ProcessSamples,
    ProcessStacks,
    ReplicaSamples,
    ThreadStack,
)
from ciao_kernel.session.inspection import profile

PROGRAM = "/ciao/program.py"
TORCH = "/usr/lib/python3/dist-packages/torch/"
JOB = Job("mine", "fake", "pytorch", (), 1.0, program=PROGRAM)
EVIL = "</title><script>alert(1)</script>\x1b[31m\u202e&\"'"
Stack = tuple[Frame, ...]


def own(line: int, function: str = "<module>", text: str = "") -> Frame:
    return Frame(PROGRAM, line, function, own=True, text=text)


def library(function: str, file: str = TORCH + "distributed/distributed_c10d.py") -> Frame:
    return Frame(file, 0, function)


REDUCE = (library("all_reduce"), library("wrapper"), own(9, "average"), own(30))
LOAD = (own(5, "load", "read()"), own(29))
LAUNCHER = Frame("/usr/lib/python3.11/runpy.py", 0, "run_module")


def process(*stacks: tuple[int, Stack], pid: int = 10, parent: int = 1) -> ProcessSamples:
    threads = (ThreadStack("", True, stacks[0][1]),) if stacks else ()
    answer = Answer.C if stacks else Answer.SILENT
    return ProcessSamples(ProcessStacks(pid, parent, answer, threads), stacks)


def replica(
    index: int, *processes: ProcessSamples, role: str = "worker", fault: str = ""
) -> ReplicaSamples:
    return ReplicaSamples(Replica(role, index), processes, fault)


def ranks(*waiting: int, stack: Stack = REDUCE, role: str = "worker") -> list[ReplicaSamples]:
    """Ranks with so many of 100 samples in a stack; the rest is in LOAD."""
    made = [[one for one in ((count, stack), (100 - count, LOAD)) if one[0]] for count in waiting]
    return [replica(at, process(*stacks), role=role) for at, stacks in enumerate(made)]


def of(replicas: list[ReplicaSamples], job: Job = JOB) -> Profile:
    return profile.of(job, replicas, 10)


def every(tree: CallTree) -> Iterator[CallTree]:
    yield tree
    for call in tree.calls:
        yield from every(call)


# ------------------------------------------------------------------------------------- merge


def test_replicas_are_merged_from_the_first_line_of_the_program_on() -> None:
    made = of([replica(n, process((60, (*REDUCE, LAUNCHER)), (40, LOAD))) for n in range(3)])
    assert made.title == "profile of mine: 10 s, 300 samples of 3 processes"
    assert [(one.name, one.count) for one in made.tree.calls] == [
        ("line 30", 180),
        ("line 29", 120),
    ]
    names = [(one.name, one.detail, one.own) for one in every(made.tree.calls[0])]
    assert names == [
        ("line 30", "", True),
        ("line 9 in average", "", True),
        ("wrapper", "torch/distributed/distributed_c10d.py", False),
        ("all_reduce", "torch/distributed/distributed_c10d.py", False),
    ]
    assert flame.text(made).split("\n")[2:] == [
        " 60 %  line 30",
        " 60 %    line 9 in average",
        " 60 %      wrapper → all_reduce  torch/distributed/distributed_c10d.py",
        " 40 %  line 29",
        " 40 %    line 5 in load  read()",
    ]


def test_what_did_not_answer_is_named_and_children_are_not_counted() -> None:
    parent = process((50, LOAD), pid=10)
    child = process((50, LOAD), pid=11, parent=10)
    silent = process(pid=12)
    made = of([replica(0, parent, child), replica(1, silent), replica(2, fault="it is Pending")])
    assert made.tree.count == 50
    assert made.remarks == (
        "worker-1: does not answer.",
        "worker-2: it is Pending.",
        "1 process that the program has started, such as a data loader's, are not counted.",
    )


def test_a_job_without_the_handler_says_so_and_has_no_picture() -> None:
    none = ProcessSamples(ProcessStacks(1, 0, Answer.NONE, command="python3"))
    made = of([replica(0, none)])
    assert "%inspect=off" in made.remarks[-1]
    assert "<svg" not in flame.html(made)
    assert flame.text(made).count("\n") == 2


# ------------------------------------------------------------------------------------ verdict


@pytest.mark.parametrize(
    ("waiting", "words"),
    [
        ((79, 81, 3), "worker-2 waits 3 % of its time for other replicas, the others 80 %: it is "),
        ((5, 60), "worker-0 waits 5 % of its time for other replicas, the others 60 %: it is the"),
        ((10, 70, 70, 70, 12), "worker-0, worker-4 wait 12 % of their time for other replicas, "),
        ((70, 75, 72), "All replicas wait for each other, 70 % of their time or more"),
        ((30, 35, 25), "The replicas wait 25 % to 35 % of their time for each other."),
        ((40,), "worker-0 waits 40 % of its time for other replicas."),
        ((5, 10, 3), ""),
        ((0, 0, 0), ""),
    ],
)
def test_who_does_not_wait_is_the_slow_one(waiting: tuple[int, ...], words: str) -> None:
    found = "\n".join(of(ranks(*waiting)).remarks)
    assert found.startswith(words)
    assert bool(found) == bool(words)
    if "slow" in found:
        assert found.endswith(" % in line 5 in load.")


def test_a_slow_rank_in_training_with_ddp_waits_less_in_its_backward_pass() -> None:
    forward = (library("forward", TORCH + "nn/parallel/distributed.py"), own(20))
    backward = (library("_engine_run_backward", TORCH + "autograd/graph.py"), own(21))
    made = [
        replica(n, process((waits, backward), (10, forward), (90 - waits, LOAD)))
        for n, waits in enumerate((70, 20, 72))
    ]
    assert of(made).remarks[0].startswith("worker-1 waits 20 % of its time")
    # Without it a backward pass is the replica's own work.
    alone = [replica(n, process((count, backward))) for n, count in enumerate((90, 30))]
    assert of(alone).remarks == ()


@pytest.mark.parametrize("text", ["comm.Recv(data, source=1)", "work.wait()", "comm.allreduce(n)"])
def test_a_wait_in_c_is_known_by_the_text_of_its_line(text: str) -> None:
    made = of(ranks(80, 2, stack=(own(9, "average", text), own(30))))
    assert made.remarks[0].startswith("worker-1 waits 2 %")
    # The same line is no wait for others while Python runs below it.
    below = (Frame("/usr/lib/python3.11/threading.py", 0, "wait"), own(9, "average", text), own(30))
    assert of(ranks(80, 2, stack=below)).remarks == ()


def test_parameter_servers_and_few_samples_are_not_compared() -> None:
    servers = ranks(99, role="ps")
    assert of([*servers, *ranks(0, 0)]).remarks == ()
    assert of([replica(0, process((10, REDUCE))), replica(1, process((10, LOAD)))]).remarks == ()


# ------------------------------------------------------------------------- picture, foreign input


def random_tree(random_: random.Random) -> list[ReplicaSamples]:
    names = ["load", "average", EVIL, "x" * 500, ""]
    made = []
    for index in range(random_.randint(1, 4)):
        stacks = []
        for _ in range(random_.randint(1, 60)):
            inner = [library(random_.choice(names)) for _ in range(random_.randint(0, 6))]
            outer = [
                own(random_.randint(1, 9), random_.choice(names), random_.choice(names))
                for _ in range(random_.randint(0, 90))
            ]
            if stack := (*inner, *outer):
                stacks.append((random_.randint(1, 50), stack))
        made.append(replica(index, process(*stacks)))
    return made


@pytest.mark.parametrize("seed", range(4))
def test_calls_are_as_wide_as_their_share_and_lie_within_their_callers(seed: int) -> None:
    made = of(random_tree(random.Random(seed)))
    total = made.tree.count
    for one in every(made.tree):
        assert sum(call.count for call in one.calls) <= one.count
    drawn = flame.boxes(made.tree, 960.0)
    assert drawn[0].width == pytest.approx(960.0)
    rows: dict[int, list[flame.Box]] = {}
    for box in drawn:
        assert box.width == pytest.approx(960.0 * box.call.count / total)
        rows.setdefault(box.depth, []).append(box)
        if box.depth:
            assert any(
                above.x - 1e-6 <= box.x
                and box.x + box.width <= above.x + above.width + 1e-6
                and any(box.call is one for one in above.call.calls)
                for above in rows[box.depth - 1]
            )
    for row in rows.values():
        row.sort(key=lambda box: box.x)
        for left, right in itertools.pairwise(row):
            assert left.x + left.width <= right.x + 1e-6
    root = ElementTree.fromstring(flame.svg(made))  # well-formed
    assert len(root.findall(".//{*}rect")) == len(drawn) <= 2000


@pytest.mark.parametrize("show", [flame.svg, flame.html, flame.text])
def test_texts_of_pods_are_no_markup_and_no_commands(show: Callable[[Profile], str]) -> None:
    stack = (Frame(f"/lib/{EVIL}", 0, EVIL), Frame(PROGRAM, 3, EVIL, own=True, text=EVIL))
    silent = replica(1, fault=EVIL)
    shown = show(of([replica(0, process((50, stack))), silent]))
    assert not any(character in shown for character in "\x1b\u202e")
    if show is not flame.text:
        assert "<script" not in shown
        root = ElementTree.fromstring(shown)
        assert not root.findall(".//{*}script")
        assert "</title><script>" in "".join(root.itertext())


def test_the_answer_of_a_pod_may_be_anything() -> None:
    def read(**more: object) -> ProcessSamples:
        record = {"pid": 1, "parent": 0, "how": "c", "state": "S", **more}
        (one,) = answers.read(json.dumps([record]).encode())
        return answers.samples(one)

    frame = [PROGRAM, 3, "work", True, "text"]
    good = read(frames=[frame], stacks=[[7, [0]]], rest=2)
    assert (good.stacks, good.rest) == (((7, (own(3, "work", "text"),)),), 2)
    for stacks in (
        7,
        [7],
        [[7]],
        [["7", [0]]],
        [[-7, [0]]],
        [[7, [5]]],
        [[7, ["a"]]],
        [[1e9, [0]]],
    ):
        assert read(frames=[frame], stacks=stacks).stacks == ()
    for frames in (7, [7], [[1, 2]], [[1, 2, 3, 4, 5]], None):
        made = of([replica(0, read(frames=frames, stacks=[[7, [0]]]))])
        assert all(show(made) for show in (flame.svg, flame.html, flame.text))
    deep = read(frames=[frame], stacks=[[7, [0] * 100_000]])
    made = of([replica(0, deep)])
    assert all(show(made) for show in (flame.svg, flame.html, flame.text))
    assert json.dumps(asdict(made), indent=2)
