"""Stacks of many processes merged into a few lines."""

from __future__ import annotations

import re
from typing import Any

from ciao_kernel.model import Job, Replica
from ciao_kernel.model.stacks import Answer, Frame, ProcessStacks, ReplicaStacks, ThreadStack
from ciao_kernel.session.inspection import picture, positions

PROGRAM = "/ciao/program.py"
TORCH = "/usr/lib/python3/dist-packages/torch/distributed"
JOB = Job("mine", "fake", "pytorch", (), 1.0, program=PROGRAM)


def own(line: int, function: str = "<module>", text: str = "", file: str = PROGRAM) -> Frame:
    return Frame(file, line, function, own=True, text=text)


def thread(*frames: Frame, name: str = "MainThread") -> ThreadStack:
    return ThreadStack(name, name == "MainThread", frames)


def process(
    *threads: ThreadStack,
    pid: int = 10,
    parent: int = 1,
    answer: Answer = Answer.PYTHON,
    **more: str,
) -> ProcessStacks:
    return ProcessStacks(pid, parent, answer, threads, **more)


def replica(index: int, *processes: ProcessStacks, fault: str = "") -> ReplicaStacks:
    return ReplicaStacks(Replica("worker", index), processes, fault)


def lines(*replicas: ReplicaStacks, whole: bool = False) -> list[str]:
    first, *rest = picture.text(JOB, replicas, whole=whole).split("\n")
    assert re.fullmatch(r"where the replicas of mine stand at \d\d:\d\d:\d\d:", first)
    return [re.sub(r"  +", " | ", line.strip()) for line in rest]


def reducing(inner: int) -> ThreadStack:
    """A main thread in all_reduce; its innermost lines differ from rank to rank."""
    return thread(
        Frame(f"{TORCH}/inner.py", inner, "wait"),
        Frame(f"{TORCH}/distributed_c10d.py", 2500, "all_reduce"),
        Frame(f"{TORCH}/c10d_logger.py", 83, "wrapper"),
        own(25, "average", "dist.all_reduce(t)"),
        own(30),
    )


def test_ranks_are_merged_by_their_lines_and_the_first_call_below() -> None:
    waiting = [replica(n, process(reducing(n), answer=Answer.C)) for n in (0, 2)]
    loading = replica(1, process(thread(own(21, "loader", "time.sleep(1)"), own(30))))
    assert lines(waiting[0], loading, waiting[1]) == [
        "worker-0, worker-2 | line 25 in average → all_reduce (in C) | dist.all_reduce(t)",
        "worker-1 | line 21 in loader | time.sleep(1)",
        "worker-1 stands elsewhere than all others.",
    ]


def test_another_call_of_the_same_function_is_another_place() -> None:
    calls = [thread(own(5, "step"), own(line)) for line in (30, 40)]
    found = lines(*(replica(n, process(one)) for n, one in enumerate(calls)))
    assert found == ["worker-0 | line 5 in step", "worker-1 | line 5 in step"]


def test_threads_that_run_the_program_are_named_and_others_are_not() -> None:
    main = thread(Frame("/usr/lib/python3.11/threading.py", 1112, "join"), own(9, text="t.join()"))
    feeder = thread(own(4, "feed", "with lock:"), name="feeder")
    pool = thread(Frame("/usr/lib/python3.11/queue.py", 10, "get"), name="pool")
    assert lines(replica(0, process(main, pool, feeder))) == [
        "worker-0 | line 9 → join | t.join()",
        "thread feeder | line 4 in feed | with lock:",
    ]


def test_processes_of_torchrun_are_shown_without_torchrun_itself() -> None:
    agent = process(thread(Frame(f"{TORCH}/run.py", 1, "main")), pid=2)
    ranks = [process(thread(own(7)), pid=n, parent=2, rank=str(n - 3)) for n in (3, 4)]
    loader = process(thread(Frame(f"{TORCH}/worker.py", 8, "_worker_loop")), pid=9, parent=4)
    assert lines(replica(0, agent, *ranks, loader)) == [
        "worker-0[0], worker-0[1] | line 7",
        "worker-0 (child 9) | in _worker_loop of torch/distributed/worker.py:8",
    ]


def test_a_number_names_a_process_only_beside_one_with_another_number() -> None:
    first = process(thread(own(7)), pid=3, rank="0")
    child = process(thread(own(7)), pid=4, parent=3, rank="0")
    assert lines(replica(0, first, child)) == ["worker-0, worker-0 (child 4) | line 7"]
    # Of a launcher that tells no count, the process with 0 has no number.
    ranks = [process(thread(own(7)), pid=n, rank=rank) for n, rank in ((3, ""), (4, "1"))]
    assert lines(replica(0, *ranks)) == ["worker-0, worker-0[1] | line 7"]


def test_an_import_is_named_by_its_line() -> None:
    frozen = Frame("<frozen importlib._bootstrap>", 1027, "_find_and_load")
    deep = Frame(f"{TORCH}/deep.py", 3, "<module>")
    assert lines(replica(0, process(thread(deep, frozen, own(4, text="import torch"))))) == [
        "worker-0 | line 4 | import torch"
    ]


def test_a_module_beside_the_program_is_named() -> None:
    inside = own(3, "load", "read()", file="/ciao/data/utils.py")
    assert lines(replica(0, process(thread(inside, own(8))))) == [
        "worker-0 | line 3 of data/utils.py in load | read()"
    ]


def test_replicas_without_an_answer_are_named_with_the_reason() -> None:
    silent = process(answer=Answer.SILENT, state="S")
    stopped = process(answer=Answer.SILENT, state="T")
    shell = process(answer=Answer.NONE, command="sh")
    young = process(answer=Answer.NONE, command="python3")
    found = lines(
        replica(0, process(thread(own(1)))),
        replica(1, silent),
        replica(2, stopped),
        replica(3, shell),
        replica(4, young),
        replica(5, fault="it is Pending"),
    )
    assert found == [
        "worker-0 | line 1",
        "worker-1 | does not answer",
        "worker-2 | is stopped by a signal",
        "worker-3 | runs no Python (sh)",
        "worker-4 | Python has just started, or runs without the handler",
        "worker-5 | it is Pending",
    ]


def test_a_job_without_any_handler_is_told_the_reasons() -> None:
    *_, hint = lines(replica(0, process(answer=Answer.NONE, command="python3")))
    assert hint.startswith("A job has no handler with %inspect=off")
    assert "with a Python older than 3.8, or where neither Python nor the C library can" in hint


def test_replicas_at_a_breakpoint_and_at_an_error_are_at_their_prompts() -> None:
    prompt = (
        Frame("/usr/lib/python3.13/socket.py", 294, "accept"),
        Frame("/ciao/.ciao/ciao_debug_wire.py", 210, "_accept"),
        Frame("/ciao/.ciao/ciao_debug_prompt.py", 44, "interaction"),
        Frame("/usr/lib/python3.11/pdb.py", 260, "user_line"),
        Frame("/usr/lib/python3.11/bdb.py", 90, "trace_dispatch"),
    )
    failed = Frame("/ciao/.ciao/ciao_post_mortem.py", 40, "keep")
    stopped = process(thread(*prompt, own(8)), answer=Answer.C)
    assert lines(replica(0, stopped)) == ["worker-0 | line 8 → its prompt of pdb"]
    assert lines(replica(1, process(thread(*prompt, failed)))) == [
        "worker-1 | at its prompt of pdb"
    ]


def test_many_replicas_are_counted() -> None:
    many = [replica(n, process(thread(own(1)))) for n in range(100)]
    assert lines(*many) == ["worker-0, worker-1, worker-2, worker-3 and 96 more | line 1"]


def test_whole_stacks_are_those_of_one_process_of_each_group() -> None:
    found = lines(replica(0, process(reducing(1))), replica(1, process(reducing(2))), whole=True)
    assert found == [
        "worker-0, worker-1 | line 25 in average → all_reduce | dist.all_reduce(t)",
        "thread MainThread:",
        "torch/distributed/inner.py:1 wait",
        "torch/distributed/distributed_c10d.py:2500 all_reduce",
        "torch/distributed/c10d_logger.py:83 wrapper",
        "/ciao/program.py:25 average",
        "/ciao/program.py:30 <module>",
    ]


def test_what_a_pod_answers_controls_no_terminal() -> None:
    bad = "\x1b[2J\u202e\n"
    hostile = thread(Frame(bad, 1, bad), own(1, bad, bad, file=f"/ciao/{bad}"), name="MainThread")
    other = thread(own(2, bad, bad), name=bad)
    one = process(hostile, other, command=bad)
    for whole in (False, True):
        text = picture.text(JOB, [replica(0, one), replica(1, fault=bad)], whole=whole)
        assert "\x1b" not in text
        assert "\u202e" not in text
        assert all(line.startswith(("where", " ", "worker-")) for line in text.split("\n"))


def test_equal_places_and_others() -> None:
    here = [replica(0, process(reducing(1))), replica(1, process(thread(own(5))))]
    still = [replica(0, process(reducing(9))), replica(1, process(thread(own(5))))]
    moved = [replica(0, process(reducing(1))), replica(1, process(thread(own(6))))]
    assert positions.same_place(here, still)
    assert not positions.same_place(here, moved)
    assert positions.answered(here)
    assert not positions.answered([replica(0, process(answer=Answer.NONE))])


def test_an_import_that_goes_on_is_not_the_same_place() -> None:
    def importing(line: int) -> list[ReplicaStacks]:
        frozen = Frame("<frozen importlib._bootstrap>", 1027, "_find_and_load")
        deep = Frame(f"{TORCH}/deep.py", line, "<module>")
        return [replica(0, process(thread(deep, frozen, own(4, text="import torch"))))]

    assert positions.same_place(importing(3), importing(3))
    assert not positions.same_place(importing(3), importing(4))


def test_warm_replicas_wait_for_their_next_run_or_import_for_it() -> None:
    agent = thread(Frame("/ciao/ciao_warm_agent.py", 902, "loop"), Frame("a.py", 1, "<module>"))
    served = Frame("/ciao/ciao_warm_zygote.py", 60, "serve")
    idle = thread(Frame("/usr/lib/python3.11/selectors.py", 468, "select"), served)
    imports = thread(
        Frame("<frozen importlib._bootstrap>", 1, "_load"),
        Frame("/ciao/ciao_warm_zygote.py", 90, "_bring"),
        served,
    )
    deep = thread(*[Frame("<frozen importlib._bootstrap>", 1, "_load")] * 100)
    zygote: dict[str, Any] = {"pid": 11, "parent": 10, "command": "ciao-zygote"}
    waiting = replica(0, process(agent), process(idle, **zygote))
    importing = replica(1, process(agent), process(imports, **zygote))
    cut = replica(2, process(agent), process(deep, **zygote))
    assert lines(waiting, importing, cut) == [
        "worker-1, worker-2 | imports modules for its runs",
        "worker-0 | waits for its next run",
    ]


def test_what_waits_beside_a_warm_run_is_not_shown() -> None:
    agent = thread(Frame("/ciao/ciao_warm_agent.py", 902, "loop"))
    idle = thread(Frame("/ciao/ciao_warm_zygote.py", 60, "serve"))
    heir = thread(*[Frame("<frozen importlib._bootstrap>", 1, "_load")] * 100)
    run = thread(own(3, text="train()"), Frame("/ciao/ciao_warm_zygote.py", 190, "run"))
    found = replica(
        0,
        process(agent),
        process(idle, pid=11, parent=10, command="ciao-zygote"),
        process(heir, pid=12, parent=11, command="ciao-zygote"),
        process(run, pid=13, parent=11),
    )
    assert lines(found) == ["worker-0 | line 3 | train()"]
