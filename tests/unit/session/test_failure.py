"""Why a job failed: the right replica, its traceback with the cell's lines, and a way on."""

from __future__ import annotations

import html
import shutil
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ciao_kernel.errors import JobError, JobFailed, JobStopped
from ciao_kernel.model import Job, Replica, ReplicaStatus, State, Status, exit_text
from ciao_kernel.session.failure import tracebacks
from ciao_kernel.session.failure.evidence import Failure
from ciao_kernel.session.failure.explanation import explain, is_consequence
from ciao_kernel.session.failure.verdict import judge
from tests.helpers.growth import is_linear
from tests.helpers.torchrun_report import KILLED, report

PLACE = "/jobs/mnist/work"
NAMES = ("worker-0", "worker-1", "ps-0")
VICTIM = 'Traceback (most recent call last):\n  File "x", line 1\n{}\n'


def replica(name: str) -> Replica:
    role, _, index = name.rpartition("-")
    return Replica(role, int(index))


JOB = Job(
    "mnist",
    "local",
    "tensorflow",
    tuple(map(replica, NAMES)),
    0.0,
    PLACE,
    f"{PLACE}/ciao_cell.py",
)


def failed(
    logs: dict[str, str | bytes],
    *,
    by: str = "worker-0",
    codes: dict[str, int] | None = None,
    folder: Path = Path("/nowhere"),
    message: str = "",
    job: Job = JOB,
    log: str = "/jobs/mnist/logs/worker-0.log",
    variables: dict[str, Any] | None = None,
) -> JobFailed:
    """Explain a job of which ``by`` failed first; the others had succeeded or were stopped."""
    codes = {by: 1, **(codes or {})}
    replicas = tuple(
        ReplicaStatus(
            replica(name),
            State.FAILED
            if name == by
            else State.STOPPED
            if codes.get(name, -15)
            else State.SUCCEEDED,
            0.0,
            codes.get(name, -15),
            log=log,
        )
        for name in NAMES
    )
    status = Status(
        State.FAILED,
        replicas,
        message=message,
        settled=True,
        decided_by=replica(by) if by else None,
    )
    tails = {
        replica(name): text.encode() if isinstance(text, str) else text
        for name, text in logs.items()
    }
    return explain(Failure(job, status, tails, folder, variables or {}))


def python(code: str) -> str:
    """What a real Python says when it runs this as the cell."""
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder, Path(JOB.program).name)
        program.write_text(textwrap.dedent(code))
        done = subprocess.run(
            [sys.executable, "-Wdefault", str(program)], capture_output=True, text=True, check=False
        )
        return (done.stdout + done.stderr).replace(folder, PLACE)


def text(error: JobFailed) -> str:
    return "\n".join(error.traceback)


# ------------------------------------------------------------------------------ tracebacks


def test_a_traceback_shows_the_cells_lines() -> None:
    error = failed(
        {
            "worker-0": "step 1\n"
            + python(
                """
                def train(x):
                    return 1 / x
                train(0)
                """
            )
        }
    )
    assert error.message == "worker-0 ended with exit code 1: ZeroDivisionError: division by zero"
    assert error.job == "mnist"
    assert error.traceback[0] == "Traceback (most recent call last):"
    assert "  Cell, line 3, in train" in error.traceback
    assert "  Cell, line 4, in <module>" in error.traceback
    assert error.traceback[-1] == "ZeroDivisionError: division by zero"
    assert PLACE not in text(error)


def test_local_modules_are_named_by_their_paths_beside_the_notebook() -> None:
    trace = f"""Traceback (most recent call last):
  File "{PLACE}/ciao_cell.py", line 1, in <module>
  File "{PLACE}/pkg/data.py", line 9, in load
KeyError: 'x'
"""
    error = failed({"worker-0": trace})
    assert '  File "pkg/data.py", line 9, in load' in error.traceback


def test_a_file_that_was_run_keeps_its_name() -> None:
    job = Job("mnist", "local", "tensorflow", JOB.replicas, 0.0, PLACE, f"{PLACE}/train.py")
    trace = f'Traceback (most recent call last):\n  File "{PLACE}/train.py", line 3, in f\nE: x\n'
    assert '  File "train.py", line 3, in f' in failed({"worker-0": trace}, job=job).traceback


def test_a_file_that_was_delivered_by_another_name_is_shown_by_its_own() -> None:
    for delivered, own in (("ciao_queue.py", "queue.py"), ("ciao_train.py", "ciao_train.py")):
        job = Job("q", "local", "tensorflow", JOB.replicas, 0.0, PLACE, f"{PLACE}/{delivered}")
        trace = VICTIM.format("E: x").replace('"x"', f'"{PLACE}/{delivered}"')
        assert f'  File "{own}", line 1' in failed({"worker-0": trace}, job=job).traceback


@pytest.mark.parametrize("how", ["", " from error", " from None"])
def test_chained_exceptions_are_shown_as_python_shows_them(how: str) -> None:
    said = python(
        f"""
        try:
            try:
                {{}}["key"]
            except KeyError as error:
                raise ValueError("second"){how}
        except ValueError as error:
            raise RuntimeError("third")
        """
    )
    error = failed({"worker-0": "noise\n" + said})
    assert error.message.endswith("RuntimeError: third")
    assert ("KeyError: 'key'" in error.traceback) == (how != " from None")
    assert "ValueError: second" in error.traceback
    assert "noise" not in text(error)


def test_an_earlier_traceback_that_was_caught_is_not_shown() -> None:
    said = python("import traceback\ntry: 1/0\nexcept Exception: traceback.print_exc()\nint('x')")
    error = failed({"worker-0": said})
    assert "ZeroDivisionError" not in text(error)
    assert "ValueError: invalid literal" in error.message


def test_an_error_whose_class_is_local_to_a_function() -> None:
    said = python(
        """
        def main():
            class DataError(Exception):
                pass
            raise DataError("no rows")
        main()
        """
    )
    error = failed({"worker-0": said})
    assert error.message.endswith("exit code 1: main.<locals>.DataError: no rows")
    assert error.traceback[0].startswith("Traceback")


def test_an_exception_group_whose_class_is_local_to_a_function() -> None:
    said = python(
        """
        def main():
            class Several(ExceptionGroup):
                pass
            raise Several("several", [ValueError("one")])
        main()
        """
    )
    error = failed({"worker-0": said})
    assert error.message.endswith("main.<locals>.Several: several (1 sub-exception)")


@pytest.mark.skipif(sys.version_info < (3, 11), reason="exception groups")
def test_exception_groups() -> None:
    said = python(
        """
        def fail(e):
            raise e
        errors = []
        for e in (ValueError("one"), TypeError("two")):
            try:
                fail(e)
            except Exception as error:
                errors.append(error)
        raise ExceptionGroup("several", errors)
        """
    )
    error = failed({"worker-0": said + "\nafter\n| loss: 0.3 |\n"})
    assert "loss" not in text(error)
    assert error.message.endswith("ExceptionGroup: several (2 sub-exceptions)")
    assert "ValueError: one" in text(error)
    assert "TypeError: two" in text(error)
    assert "after" not in text(error)


def test_a_syntax_warning_is_no_traceback_and_a_syntax_error_is_one() -> None:
    said = python("x = '\\d'\nraise ValueError('v')")
    error = failed({"worker-0": said})
    assert error.traceback[0].startswith("Traceback")
    assert "Warning" not in text(error)
    said = python("import ast\nast.parse('a b')")
    error = failed({"worker-0": said})
    assert "SyntaxError: invalid syntax" in error.message


def test_messages_of_several_lines_stay_with_their_error() -> None:
    trace = """Traceback (most recent call last):
  File "x.py", line 1, in <module>
RuntimeError: Error(s) in loading state_dict for Net:
\tMissing key(s) in state_dict: "fc.weight".
\tUnexpected key(s): "fd".
INFO:root: bye
"""
    error = failed({"worker-0": trace})
    assert error.message.endswith("RuntimeError: Error(s) in loading state_dict for Net:")
    assert error.traceback[-1] == '\tUnexpected key(s): "fd".'


@pytest.mark.parametrize(
    "error",
    [
        *("IndexError: x", "ImportError: x", "WorkerError: x", "InfoError: x", "AssertionError"),
        *("AssertionError:", "my.module.Error: x", "_Private: x", "E1: x"),
    ],
)
def test_errors_of_any_name(error: str) -> None:
    found = failed({"worker-0": VICTIM.format(error)})
    assert found.message == f"worker-0 ended with exit code 1: {error}"


@pytest.mark.parametrize(
    "said",
    [
        "| loss: 0.3 | accuracy: 0.9 |\n",
        "Traceback (most recent call last): see above\nnote: x\n",
        "  + Exception Group Traceback (most recent call last): see above\n  | note: x\n",
    ],
)
def test_what_only_looks_like_a_traceback_is_none(said: str) -> None:
    assert failed({"worker-0": said}).message == "worker-0 ended with exit code 1."


def test_lines_of_other_threads_within_a_traceback_are_passed_over() -> None:
    trace = """Traceback (most recent call last):
  File "x.py", line 1, in <module>
step 7 loss 0.3
INFO:root: thread says hello
    boom()
2026-01-01 12:00:00.1 I tensorflow/core: something
ValueError: real
"""
    error = failed({"worker-0": trace})
    assert error.message.endswith("exit code 1: ValueError: real")
    assert "step 7" not in text(error)


@pytest.mark.parametrize("word", ["DEBUG", "INFO", "WARNING", "WARN", "NOTE", "I", "W"])
def test_what_a_logger_says_within_a_traceback_is_no_error(word: str) -> None:
    said = VICTIM.format(f"{word}: low memory\nValueError: real")
    error = failed({"worker-0": said})
    assert error.message.endswith("exit code 1: ValueError: real")
    assert word not in error.traceback[-2]


def test_a_traceback_that_is_cut_off_is_none() -> None:
    error = failed({"worker-0": 'Traceback (most recent call last):\n  File "x.py", line 1\n'})
    assert error.message == "worker-0 ended with exit code 1."
    assert error.traceback[-1] == '[worker-0]   File "x.py", line 1'


def test_an_error_that_was_logged_and_gone_on_from_is_not_why_a_program_exits() -> None:
    said = python(
        """
        import logging, sys
        try: {}["cache"]
        except KeyError: logging.exception("going on")
        for step in range(500): print("step", step, file=sys.stderr)
        print("no data left, giving up", file=sys.stderr)
        sys.exit(3)
        """
    )
    assert "KeyError: 'cache'" in said
    for code in (1, 3):
        error = failed({"worker-0": said}, codes={"worker-0": code})
        assert error.message == f"worker-0 ended with exit code {code}."
        assert error.traceback[-1] == "[worker-0] no data left, giving up"
    # Another code than Python's for an error is a program's own choice.
    said = VICTIM.format("KeyError: 'x'") + "INFO: on\n" * 30 + "giving up\n"
    assert "KeyError" not in failed({"worker-0": said}, codes={"worker-0": 3}).message
    said = VICTIM.format("KeyError: 'x'") + "INFO: cleaning up\n" * 3
    assert "KeyError" in failed({"worker-0": said}, codes={"worker-0": 3}).message


@pytest.mark.parametrize(
    ("code", "most"),
    [(1, 50), (3, 10)],  # Python's own code for an error, and one that the program chose
)
def test_a_traceback_is_the_reason_if_few_lines_follow_it(code: int, most: int) -> None:
    for lines in (most, most + 1):
        said = VICTIM.format("KeyError: 'x'") + "INFO: cleaning up\n" * lines
        found = failed({"worker-0": said.rstrip("\n")}, codes={"worker-0": code}).message
        assert ("KeyError" in found) == (lines == most)


def test_indented_progress_is_progress_too() -> None:
    said = VICTIM.format("KeyError: 'x'") + " 3/10 ━━━━ 1s 3ms/step\n" * 500
    assert "KeyError" not in failed({"worker-0": said}).message


FRAMES = "".join(f"frame #{n}: c10d::watchdog() + 0x{n} (0x7f in libtorch.so)\n" for n in range(60))
BEHIND = {
    "watchdog": (
        "[rank0]:[E1121 14:02:28.1 ProcessGroupNCCL.cpp:616] [Rank 0] Watchdog caught timeout\n"
        f"Exception raised from checkTimeout at Process.cpp:618 (most recent call first):\n{FRAMES}"
    )
    * 4,
    "NCCL": "node-1:42:77 [0] NCCL INFO comm 0x55 rank 0 nranks 2 - Abort COMPLETE\n" * 100,
    "TensorFlow": "2026-01-01 12:00:00.123456: W tensorflow/core/kernels/data.cc:108] end\n" * 100,
    "absl": "W0000 00:00:1795335190.836461 19664 rpc_server.cc:83] shutting down\n" * 100,
    "agent": "W1122 08:13:23.6 197 torch/distributed/elastic/api.py:1028] Sending\n" * 100,
    "torchrun": (
        "W1122 08:13:23.6 197 torch/distributed/elastic/multiprocessing/api.py:1028] Sending\n"
        * 8
        + 'Traceback (most recent call last):\n  File "run.py", line 892, in main\n'
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n"
        + "=" * 60
        + "\ntrain.py FAILED\nFailures:\n"
        + "".join(
            f"[{n}]:\n  time      : now\n  host      : here\n  rank      : {n}\n"
            "  exitcode  : -15\n  error_file: <N/A>\n  traceback : Signal 15 (SIGTERM) received\n"
            for n in range(8)
        )
        + "=" * 60
        + "\n"
    ),
    "progress": "step 9: 30%|███ | 3/10\n" * 8 + "\rEpoch 1: 1%|\rEpoch 1: 2%|" * 500,
    "wandb": "wandb: Run summary: loss 0.1\n" * 100,
    "thread": "Thread 0x00007f01 (most recent call first):\n" * 100,
    "this thread": "Current thread 0x00007f02 (most recent call first):\n" * 100,
    "PyTorch": "[W1121 14:02:28.1 ProcessGroup.cpp:616] Warning: not destroyed\n" * 100,
    "header": "W0000 00:00:1795335190.836461 19664 rpc_server.h:83] shutting down\n" * 100,
    "XLA": "2026-01-01 12:00:00.123456: W external/local_xla/x.cc:108] end\n" * 100,
    "blanks": "   \n" * 100 + "[rank0]: \n" * 100,
    "excepthook": "Error in sys.excepthook:\n" + VICTIM.format("OSError: late"),
    "atexit": "closing the cache\nflushing\nError in atexit._run_exitfuncs:\n"
    + VICTIM.format("OSError: late"),
    "del": "Exception ignored in: <function Pool.__del__ at 0x7f>\n"
    + VICTIM.format("AttributeError: 'NoneType' object has no attribute 'dumps'"),
}


@pytest.mark.parametrize("behind", BEHIND)
def test_what_is_said_at_an_end_hides_no_traceback(behind: str) -> None:
    error = failed({"worker-0": "step 1\n" + VICTIM.format("ValueError: x") + BEHIND[behind]})
    assert error.message == "worker-0 ended with exit code 1: ValueError: x"


@pytest.mark.parametrize(
    ("behind", "ended"),
    [
        (["a", "b"], True),
        (["a", "b", "c"], False),
        ([" a"] * 8, True),  # as of a stack: a quarter each
        ([" a"] * 9, False),
        (["a", *[" a"] * 4], True),
        (["a", *[" a"] * 5], False),
        (["a", "", "  ", "[rank0]: ", "wandb: done", "b"], True),
    ],
)
def test_how_much_may_be_behind_the_traceback_of_an_end(behind: list[str], ended: bool) -> None:
    lines = ["step 1", *VICTIM.format("ValueError: x\nERROR end").splitlines(), *behind]
    assert (tracebacks.last_traceback(lines, 3) is not None) == ended


def test_an_error_that_was_told_before_is_no_part_of_the_last() -> None:
    caught = VICTIM.format("ValueError: caught") + "INFO going on\n"
    assert "caught" not in text(failed({"worker-0": caught + VICTIM.format("KeyError: 'x'")}))
    # Nor is it why the replica ended, though what it says last comes from another's end.
    assert "ConnectionReset" in failed({"worker-0": caught + RESET}).message


def test_what_is_said_at_an_end_concerns_what_comes_behind_it_only() -> None:
    said = VICTIM.format("ValueError: x") + "Exception ignored in: <Thread>"
    assert failed({"worker-0": said}).message.endswith("ValueError: x")


def test_chained_tracebacks_are_one_however_long() -> None:
    deep = "".join(f'  File "x.py", line {n}, in f\n    f()\n' for n in range(15))
    said = f"Traceback (most recent call last):\n{deep}KeyError: 'a'\n"
    link = "\nDuring handling of the above exception, another exception occurred:\n\n"
    whole = link.join([said, said, VICTIM.format("ValueError: b")])
    error = failed({"worker-0": whole + "bye\n" * 70})
    assert error.traceback.count("KeyError: 'a'") == 2
    assert "ValueError: b" in error.message


TORCHRUN = """[rank0]: Traceback (most recent call last):
[rank0]:   File "/jobs/mnist/work/ciao_cell.py", line 5, in <module>
[rank0]:     raise ValueError("mine")
[rank0]: ValueError: mine
E1121 14:02:28.1 4242 torch/distributed/elastic/multiprocessing/api.py:882] failed (exitcode: 1)
Traceback (most recent call last):
  File "<frozen runpy>", line 198, in _run_module_as_main
  File "/site/torch/distributed/run.py", line 892, in main
    run(args)
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
/jobs/mnist/work/ciao_cell.py FAILED
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  rank      : 0 (local_rank: 0)
  exitcode  : 1 (pid: 4250)
============================================================
"""


def test_torchruns_wrapper_is_not_the_cause() -> None:
    error = failed({"worker-0": TORCHRUN})
    assert error.message == "worker-0 ended with exit code 1: ValueError: mine"
    assert error.traceback == (
        "Traceback (most recent call last):",
        "  Cell, line 5, in <module>",
        '    raise ValueError("mine")',
        "ValueError: mine",
    )


LAUNCHED = """Traceback (most recent call last):
  File "/usr/bin/accelerate", line 8, in <module>
    sys.exit(main())
  File "{}", line 763, in simple_launcher
    raise subprocess.CalledProcessError(returncode=process.returncode, cmd=cmd)
subprocess.CalledProcessError: Command '['/usr/bin/python', 'ciao_cell.py']' returned non-zero \
exit status 1.
"""
ACCELERATE = LAUNCHED.format("/site/accelerate/commands/launch.py")


def test_the_error_of_accelerate_launch_is_not_the_cause() -> None:
    said = "step 1\n" + VICTIM.format("ValueError: mine")
    error = failed({"worker-0": said + ACCELERATE})
    assert error.message == "worker-0 ended with exit code 1: ValueError: mine"
    assert "accelerate" not in text(error)
    # It is the only one of a program that ended without a traceback.
    for before in ("step 1\n", VICTIM.format("KeyError: 'caught'") + "step 1\n" * 500):
        error = failed({"worker-0": before + ACCELERATE})
        assert "CalledProcessError" in error.message
        assert "KeyError" not in text(error)
    # It may fail by itself, before it starts the program.
    refused = ACCELERATE.replace("subprocess.CalledProcessError: ", "ValueError: no GPU for ")
    error = failed({"worker-0": VICTIM.format("KeyError: 'caught'") + refused})
    assert "ValueError: no GPU for" in error.message
    # A program may start others by itself.
    own = LAUNCHED.format(f"{PLACE}/ciao_cell.py")
    error = failed({"worker-0": VICTIM.format("ValueError: caught") + own})
    assert "CalledProcessError" in error.message


def test_torchruns_report_is_not_what_a_killed_process_wrote_last() -> None:
    error = failed({"worker-0": f"step 1\n{KILLED}"})
    assert error.message == "worker-0 ended with exit code 1: rank 0 was killed by SIGKILL."
    assert error.traceback == ("[worker-0] step 1",)
    assert "memory" in error.hint
    # torchrun may end as its process did.
    error = failed({"worker-0": f"step 1\n{KILLED}"}, codes={"worker-0": -9})
    assert error.message == "worker-0 was killed by SIGKILL (rank 0)."


KERAS = """ValueError: Exception encountered when calling Dense.call().

Input 0 of layer "dense" is incompatible with the layer:
expected shape=(None, 784), found shape=(32, 10)

Arguments received by Dense.call():
  • inputs=tf.Tensor(shape=(32, 10), dtype=float32)
  • training=True"""
TENSORFLOW = (
    "tensorflow.python.framework.errors_impl.InvalidArgumentError: Graph execution error:\n\n"
    "Detected at node MatMul defined at (most recent call last):\n"
    + "".join(f'  File "layer.py", line {n}, in call\n\n' for n in range(30))
    + "Incompatible shapes: [32,784] vs. [10,10]\n\t [[{{node MatMul}}]] [Op:__inference_1]"
)
IN_USER_CODE = """ValueError: in user code:

    File "x.py", line 9, in train_step  *
        y = self(x)

    ValueError: Shapes (None, 1) and (None, 10) are incompatible"""
LOADER = """RuntimeError: Caught ValueError in DataLoader worker process 0.
Original Traceback (most recent call last):
  File "worker.py", line 351, in _worker_loop
ValueError: bad sample 7"""


@pytest.mark.parametrize(
    "said",
    [
        "ValueError: Input 0 is incompatible:\nexpected shape=(None, 784), found shape=(32, 10)",
        KERAS,
        TENSORFLOW,
        IN_USER_CODE,
        LOADER,
    ],
)
@pytest.mark.parametrize(
    "after",
    [
        "",
        "\n\n",
        "2026-01-01 12:00:00.1: I tensorflow/core/x.cc:405] bye\n",
        "\nE1121 14:02:28.1 42 torch/distributed/elastic/api.py:882] failed (exitcode: 1)\nx: 1\n",
        "============================\ntrain.py FAILED\n",
        "WARNING:root:bye\n",
        "[rank1]:[W1121 14:02:28.1 Process.cpp:1] Warning: not destroyed\n",
        "[worker-1] step\n",
        "/lib/resource_tracker.py:254: UserWarning: leaked\n  warnings.warn(\n",
        "Exception ignored in: <Thread>\n",
        "Epoch 2/10\n",
        " 3/10 ━━━━ 1s 3ms/step\n",
        TORCHRUN[TORCHRUN.index("E1121") :],
    ],
)
def test_the_whole_message_is_shown_and_nothing_after_it(said: str, after: str) -> None:
    error = failed({"worker-0": VICTIM.format(said) + after})
    assert text(error) == VICTIM.format(said).rstrip("\n")
    assert error.message == f"worker-0 ended with exit code 1: {said.splitlines()[0]}"


@pytest.mark.parametrize(
    "after",
    [
        *("2026-01-01 12:00:00 step\n", "12:00:00 step\n", "[2026-01-01 12:00:00] step\n"),
        *("I1121 14:02:28 step\n", "[W1121 14:02:28] step\n", "F1121 step\n", "D1121 step\n"),
        *("DEBUG x\n", "INFO x\n", "WARNING x\n", "WARN x\n", "ERROR x\n", "CRITICAL x\n"),
        *("FATAL x\n", "[ERROR] x\n", "[rank1] step\n", "[worker-1]: step\n", "********\n"),
        *("30%|███ | 3/10\n", " 30%| x\n", "step: 3\n", "EPOCH 3\n", "Step = 7\n"),
        *("Exception in thread Thread-1:\n", "Error in atexit._run_exitfuncs:\n"),
        *("Error in sys.excepthook:\n", "Fatal Python error: Aborted\n"),
        *("terminate called without an active exception\n", "Aborted (core dumped)\n"),
        *("Killed\n", "Terminated\n", "Segmentation fault (core dumped)\n"),
        *("x.py:3: DeprecationWarning: old\n", "x.py:3: Warning: old\n"),
        *("by torch/distributed/elastic/x.py\n", "agent torch.distributed.elastic: end\n"),
    ],
)
def test_what_comes_after_an_error_is_no_part_of_its_message(after: str) -> None:
    said = VICTIM.format("ValueError: x\nmore of it")
    assert failed({"worker-0": said + after}).traceback[-1] == "more of it"


@pytest.mark.parametrize(
    "more",
    [
        *("Information", "WARNINGS", "steps 3", "epochs", "30% of it", "Killedby", "[x] y", "3/4"),
        *("===", "step3", "at 12:00:00", "was Killed", "see step 3", "an ERROR"),
    ],
)
def test_what_only_looks_like_an_end_of_a_message_is_a_part_of_it(more: str) -> None:
    said = VICTIM.format(f"ValueError: x\n{more}")
    assert failed({"worker-0": said}).traceback[-1] == more


def test_a_message_has_its_limit() -> None:
    error = failed({"worker-0": VICTIM.format("ValueError: x") + "more\n" * 60 + "  stack\n"})
    assert text(error).count("more") == 20
    assert "stack" not in text(error)


def test_blank_lines_at_its_end_are_no_part_of_a_message() -> None:
    error = failed({"worker-0": VICTIM.format("ValueError: x\n\nmore\n  \n\n   ")})
    assert error.traceback[-3:] == ("ValueError: x", "", "more")


def test_the_message_of_a_chained_exception_is_whole_too() -> None:
    said = python(
        r"""
        try:
            raise ValueError("one\ntwo\n\nthree")
        except ValueError as error:
            raise RuntimeError("four\nfive") from error
        """
    )
    error = failed({"worker-0": said})
    assert text(error) == said.replace(f'File "{JOB.program}"', "Cell").rstrip("\n")


BEFORE = [
    "1/10 ━━━━━━━━━━━━━━━━━━━━ 0s 25ms/step - loss: 0.0",
    "step 3/10",
    "step 3/10 ",
    "\r  0%|          | 0/10 [00:00<?, ?it/s]\r 30%|███       | 3/10 [00:00<00:01, 5.00it/s]",
    "Your name: ",
    "x" * 5000,
    "ERROR:root:failed ",
]


@pytest.mark.parametrize("before", BEFORE)
@pytest.mark.parametrize("rank", ["", "[rank0]: "])
def test_a_traceback_behind_an_unfinished_line(before: str, rank: str) -> None:
    trace = VICTIM.format("KeyError: 'loss'").splitlines()
    said = "".join(f"{rank}{line}\n" for line in trace)
    error = failed({"worker-0": f"start\n{before}{said}"})
    assert list(error.traceback) == trace
    assert error.message.endswith("KeyError: 'loss'")


BARS = [
    "[1] \r 50%|█████     | 2/4 [00:00<00:00, 5.00it/s]",
    "[1] \r[1]  50%|█████     | 2/4 [00:00<00:00, 5.00it/s]",
    "[1] step 3/10 ",
    "",  # another process has ended the line
]


@pytest.mark.parametrize("before", BARS)
@pytest.mark.parametrize("rank", ["", "[rank1]: "])
def test_a_traceback_behind_an_unfinished_line_of_one_of_several_processes(
    before: str, rank: str
) -> None:
    """Its first line has no number, as the line has begun with it."""
    head, *rest = trace = VICTIM.format(f'  File "{JOB.program}", line 7\nE: x').splitlines()
    said = "".join(f"[1] {rank}{line}\n" for line in rest)
    error = failed({"worker-0": f"[0] start\n{before}{rank}{head}\n{said}[0] end\n"})
    assert error.message.endswith("exit code 1: E: x")
    assert list(error.traceback) == [*trace[:2], "  Cell, line 7", "E: x"]
    assert list(error.repeats[replica("worker-0")].values())[-1] == f"[1] {rank}E: x".encode()


def test_an_exception_group_behind_an_unfinished_line_of_one_of_several_processes() -> None:
    head, *rest = GROUP.format("one").splitlines()
    said = "".join(f"[1] {line}\n" for line in rest)
    error = failed({"worker-0": f"[1] \r 50%{head}\n{said}"})
    assert error.message.endswith("ExceptionGroup: one (1 sub-exception)")


def test_a_traceback_without_a_number_keeps_its_own_lines() -> None:
    """Lines of another process may come before its second line."""
    error = failed({"worker-0": VICTIM.format("E: x").replace("):\n", "):\n[1] step 3\n")})
    assert error.traceback[-1] == "E: x"


def test_a_traceback_whose_first_line_alone_is_indented() -> None:
    """A program may print its error behind blanks, or as a row of a table."""
    for before in ("  ", "\t", "| "):
        error = failed({"worker-0": f"start\n{before}{VICTIM.format('ValueError: x')}"})
        assert error.message.endswith("exit code 1: ValueError: x")


def test_an_exception_group_behind_an_unfinished_line() -> None:
    said = python("raise ExceptionGroup('several', [ValueError('one'), TypeError('two')])")
    error = failed({"worker-0": f"step 3/10{said}"})
    assert error.message.endswith("ExceptionGroup: several (2 sub-exceptions)")
    assert error.traceback[1:] == failed({"worker-0": said}).traceback[1:]


GROUP = """  + Exception Group Traceback (most recent call last):
  |   File "x.py", line 1, in <module>
  | ExceptionGroup: {} (1 sub-exception)
  +-+---------------- 1 ----------------
    | ValueError: one
    +------------------------------------
"""


def test_a_group_is_whole_whatever_is_around_it() -> None:
    one, two = GROUP.format("one"), GROUP.format("two")
    for before in ("", VICTIM.format("KeyError: 'caught'"), one):
        error = failed({"worker-0": before + two})
        assert error.message.endswith("ExceptionGroup: two (1 sub-exception)")
        assert text(error) + "\n" == two
    said = "".join(f"[rank0]: {line}\n" for line in two.splitlines())
    assert text(failed({"worker-0": said})) + "\n" == two


def test_a_line_shows_what_a_terminal_would_show() -> None:
    error = failed({"worker-0": "10%\r50%\r90%\nlast\r\r\n   \n"}, codes={"worker-0": 3})
    assert error.traceback == ("[worker-0] 90%", "[worker-0] last")
    said = "step 3/10Traceback (most recent call last):\n  File\n"
    assert failed({"worker-0": said}).traceback[0] == "[worker-0] step 3/10"


def test_ranks_that_write_at_the_same_time_are_kept_apart() -> None:
    said = """[rank0]: Traceback (most recent call last):
[rank1]: Traceback (most recent call last):
[rank0]:   File "x.py", line 1, in zero
[rank1]:   File "x.py", line 1, in one
other: line
[rank0]: ValueError: zero
[rank1]: ValueError: one

[rank1]: more
[rank0]: other
"""
    assert failed({"worker-0": said}).traceback == (
        "Traceback (most recent call last):",
        '  File "x.py", line 1, in one',
        "ValueError: one",
        "",
        "more",
    )


def ranked(rank: int, error: str) -> str:
    return "".join(f"[rank{rank}]: {line}\n" for line in VICTIM.format(error).splitlines())


def test_the_rank_that_failed_by_itself_is_the_cause() -> None:
    closed = (
        "RuntimeError: [gloo/transport/tcp/pair.cc:561] Connection closed by peer [127.0.0.1]:1"
    )
    report = TORCHRUN[TORCHRUN.index("E1121") :]
    caught = VICTIM.format("KeyError: 'caught'")
    others = "".join(ranked(n, closed) for n in (0, *range(2, 8)))
    error = failed({"worker-0": ranked(1, "ValueError: mine") + others + caught + report})
    assert error.message == "worker-0 ended with exit code 1: ValueError: mine"
    assert "Connection closed" in failed({"worker-0": caught + others + report}).message
    # Chained ones are shown whole.
    link = "[rank0]: During handling of the above exception, another exception occurred:\n\n"
    said = ranked(0, "KeyError: 'x'") + "\n" + link + ranked(0, "ValueError: mine")
    assert "KeyError: 'x'" in failed({"worker-0": said + report}).traceback
    # What one rank caught before is not the cause of its own end.
    link = "[rank0]: During handling of the above exception, another exception occurred:\n\n"
    said = ranked(0, "KeyError: 'x'") + "\n" + link + ranked(0, closed)
    assert "Connection closed" in failed({"worker-0": said + report}).message


def test_equal_tracebacks_are_counted_once() -> None:
    trace = 'Traceback (most recent call last):\n  File "x", line 1\nValueError: at 0x7f{}\n'
    error = failed(
        {"worker-0": trace.format("a1"), "worker-1": trace.format("b2"), "ps-0": "quiet\n"}
    )
    assert text(error).count("Traceback") == 1
    assert error.traceback[-1] == "The same error came from worker-1 (2 replicas in all)."


def test_equal_tracebacks_of_other_connections_are_equal_too() -> None:
    trace = VICTIM.format("RuntimeError: [10.0.0.{}:4021{}] timed out")
    error = failed({"worker-0": trace.format(1, 7), "worker-1": trace.format(22, 85)})
    assert error.traceback[-1].endswith("(2 replicas in all).")
    error = failed({"worker-0": trace.format(1, 7), "worker-1": VICTIM.format("ValueError: x")})
    assert error.traceback[-1] == "RuntimeError: [10.0.0.1:40217] timed out"


@pytest.mark.parametrize("lines", [100, 101, 160])
def test_a_very_long_traceback_is_cut_in_its_middle(lines: int) -> None:
    frames = [f'  File "x.py", line {n}, in f' for n in range(lines - 2)]
    whole = ["Traceback (most recent call last):", *frames, "ValueError: x"]
    shown = list(failed({"worker-0": "\n".join(whole)}).traceback)
    if lines == 100:
        assert shown == whole
    else:
        note = f"  … {lines - 100} lines left out …"
        assert shown == [*whole[:50], note, *whole[-50:]]


def test_a_very_long_line_is_cut_and_says_so() -> None:
    for length, shown in ((988, "y" * 988), (989, "y" * 988 + " …")):
        error = failed({"worker-0": VICTIM.format(f"ValueError: {'y' * length}")})
        assert error.traceback[-1] == f"ValueError: {shown}"


# --------------------------------------------------------------------------------- culprits


@pytest.mark.parametrize(
    "said",
    [
        "ConnectionResetError: [Errno 104] Connection reset by peer",
        "tensorflow.python.framework.errors_impl.UnavailableError: Socket closed",
        "torch.distributed.DistBackendError: NCCL error",
        "RuntimeError: [gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:1",
    ],
)
def test_the_culprit_is_named_and_not_its_victim(said: str) -> None:
    logs: dict[str, str | bytes] = {
        "worker-0": VICTIM.format(said),
        "worker-1": VICTIM.format("ValueError: the cause"),
    }
    error = failed(logs, codes={"worker-1": 1})
    assert error.message == "worker-1 ended with exit code 1: ValueError: the cause"
    # Nobody else to blame: then it is the one that failed.
    assert failed({"worker-0": VICTIM.format(said)}).message.startswith("worker-0 ended")


@pytest.mark.parametrize(
    "said",
    [
        "RuntimeError: Connection aborted",
        "ConnectionRefusedError: [Errno 111] Connection refused",
        "BrokenPipeError: [Errno 32] Broken pipe",
        "RuntimeError: Connection reset by peer",
        "tensorflow.python.framework.errors_impl.AbortedError: step 7",
        "tensorflow.python.framework.errors_impl.CancelledError: RPC",
        "tensorflow.python.framework.errors_impl.UnavailableError: x",
        "tensorflow.python.framework.errors_impl.UnknownError: Socket closed",
        "torch.distributed.DistNetworkError: x",
        "torch.distributed.elastic.multiprocessing.api.SignalException: got signal: 15",
        "RuntimeError: StoreTimeout",
    ],
)
def test_what_a_replica_says_when_another_is_gone(said: str) -> None:
    logs: dict[str, str | bytes] = {
        "worker-0": VICTIM.format(said),
        "worker-1": VICTIM.format("ValueError: the cause"),
    }
    assert failed(logs).message.startswith("worker-1")


def ends(
    *replicas: ReplicaStatus, by: Replica | None = None, message: str = "", **said: str
) -> JobFailed:
    """Explain a job whose replicas ended like this; ``said`` is what they wrote, by place."""
    status = Status(State.FAILED, replicas, message=message, settled=True, decided_by=by)
    tails = {replicas[int(place[1:])].replica: words.encode() for place, words in said.items()}
    return explain(Failure(JOB, status, tails, Path("/nowhere")))


def end(number: int, code: int | None, reason: str = "") -> ReplicaStatus:
    return ReplicaStatus(Replica("worker", number), State.FAILED, 0.0, code, reason)


RESET = VICTIM.format("ConnectionResetError: x")


@pytest.mark.parametrize(
    ("code", "reason", "how"),
    [
        (1, "", "ended with exit code 1"),
        (1, "Error of its own", "ended with exit code 1"),
        (-9, "", "was killed by SIGKILL"),
        (-9, "OOMKilled", "was killed because it used too much memory (OOMKilled)"),
        (None, "OOMKilled", "was killed because it used too much memory (OOMKilled)"),
        (None, "Evicted: low on memory", "failed: Evicted: low on memory"),
        (-9, "Error", "was killed by SIGKILL"),
        (None, "", "failed"),
        (0, "", "failed"),
    ],
)
def test_how_a_replica_failed(code: int | None, reason: str, how: str) -> None:
    assert ends(end(0, code, reason)).message == f"worker-0 {how}."


@pytest.mark.parametrize(
    ("restarts", "after"), [(0, ""), (1, " after 1 restart"), (3, " after 3 restarts")]
)
def test_a_failure_tells_how_often_the_replica_was_restarted(restarts: int, after: str) -> None:
    found = ends(replace(end(0, 3), restarts=restarts)).message
    assert found == f"worker-0 ended with exit code 3{after}."


def test_who_failed_first_is_told_by_order_where_nobody_decided() -> None:
    assert ends(end(0, 3), end(1, 4)).message == "worker-0 ended with exit code 3."


def test_a_victim_is_to_blame_where_others_only_ended() -> None:
    """Another's exit code alone tells nothing of who was first, as a signal does."""
    first = Replica("worker", 0)
    assert ends(end(0, 1), end(1, 3), by=first, _0=RESET).message.startswith("worker-0")
    assert ends(end(0, 1), end(1, None), by=first, _0=RESET).message.startswith("worker-0")
    found = ends(end(0, 1), end(1, -9), by=first, _0=RESET).message
    assert found == "worker-1 was killed by SIGKILL."


@pytest.mark.parametrize(
    ("said", "others", "wait"),
    [
        (RESET, {}, True),
        (RESET, {1: RESET}, True),
        (VICTIM.format("ValueError: mine"), {}, False),
        ("no traceback\n", {}, False),
        ("no traceback\n", {1: RESET}, False),
        (RESET, {1: VICTIM.format("ValueError: the cause")}, False),
    ],
)
def test_the_last_lines_of_others_are_awaited_after_the_loss_of_a_peer(
    said: str, others: dict[int, str], wait: bool
) -> None:
    running = ReplicaStatus(Replica("worker", 1), State.STOPPED, 0.0, -15)
    status = Status(State.FAILED, (end(0, 1), running), decided_by=Replica("worker", 0))
    tails = {Replica("worker", n): words.encode() for n, words in {0: said, **others}.items()}
    assert is_consequence(status, tails) is wait
    assert is_consequence(replace(status, replicas=()), tails) is False


def test_an_error_of_its_own_is_told_whatever_others_say() -> None:
    logs = {"_0": VICTIM.format("KeyError: 'a'"), "_1": VICTIM.format("ValueError: b")}
    found = ends(end(0, 1), end(1, 1), by=Replica("worker", 1), **logs)
    assert found.message == "worker-1 ended with exit code 1: ValueError: b"


def test_an_error_is_told_before_a_signal_that_came_beside_it() -> None:
    logs = {"_0": RESET, "_1": VICTIM.format("ValueError: b")}
    found = ends(end(0, 1), end(1, 1), end(2, -11), by=Replica("worker", 0), **logs)
    assert found.message == "worker-1 ended with exit code 1: ValueError: b"
    # One that lost its connection before the signal is a victim too.
    found = ends(end(0, 1), end(1, -11), by=Replica("worker", 0), _0=RESET, _1=RESET)
    assert found.message.startswith("worker-0")


def test_who_was_stopped_did_not_fail_first() -> None:
    stopped = ReplicaStatus(Replica("worker", 0), State.STOPPED, 0.0, -15)
    assert ends(stopped, end(1, 3)).message == "worker-1 ended with exit code 3."
    # It went on after an error, and its code is gone with its pod.
    gone = ReplicaStatus(Replica("worker", 0), State.STOPPED, 0.0, None, "deleted")
    said = VICTIM.format("ValueError: caught") + "INFO: on\n" * 30
    found = ends(gone, end(1, 1), by=Replica("worker", 1), _0=said, _1=RESET)
    assert found.message.startswith("worker-1")


def test_the_log_of_a_replica_of_which_nothing_else_is_known_is_left_out() -> None:
    said = VICTIM.format("ValueError: x")
    assert "chief-0" not in text(failed({"worker-0": said, "chief-0": said}))


def test_all_who_failed_by_the_same_are_named() -> None:
    error = failed(dict.fromkeys(NAMES, VICTIM.format("ValueError: x")))
    shown = "The same error came from worker-1, ps-0 (3 replicas in all)."
    assert error.traceback[-1] == shown


def test_a_job_can_fail_without_a_replica_that_is_known() -> None:
    unknown = Replica("launcher", 0)
    found = ends(end(0, 1), by=unknown, _0=RESET)
    assert (found.message, found.job) == ("the job failed.", "mnist")
    assert ends(by=unknown, message="the operator's words.").message == "the operator's words."


def test_what_is_said_of_the_job_is_said_first() -> None:
    found = ends(end(0, 1), message="the job ran longer than its %deadline.", _0=RESET)
    assert found.message == "the job ran longer than its %deadline."
    assert found.traceback[-1] == "ConnectionResetError: x"


def test_a_failure_without_a_code_may_be_pythons() -> None:
    """The container is gone, and with it the code: much may be behind its traceback."""
    said = VICTIM.format("ValueError: x") + "INFO: on\n" * 30
    assert ends(end(0, None), _0=said).message == "worker-0 failed: ValueError: x"


def test_a_crash_without_a_traceback_is_a_cause_too() -> None:
    logs: dict[str, str | bytes] = {
        "worker-0": VICTIM.format("ConnectionResetError: x"),
        "worker-1": "Fatal Python error: Segmentation fault\n",
    }
    assert failed(logs, codes={"worker-1": -11}).message == "worker-1 was killed by SIGSEGV."
    # SIGTERM and SIGKILL are how ciao stops the others.
    assert failed(logs, codes={"worker-1": -9}).message.startswith("worker-0")


def test_a_killed_replica_is_to_blame_though_others_print_tracebacks() -> None:
    logs: dict[str, str | bytes] = {"worker-0": "", "worker-1": VICTIM.format("ValueError: late")}
    error = failed(logs, codes={"worker-0": -9})
    assert error.message == "worker-0 was killed by SIGKILL."
    assert "out of memory" in error.hint


def test_what_stopping_causes_is_no_cause() -> None:
    logs: dict[str, str | bytes] = {
        "worker-0": VICTIM.format("ConnectionResetError: x"),
        "worker-1": VICTIM.format("KeyboardInterrupt"),
    }
    assert failed(logs).message.startswith("worker-0 ended")


def test_a_replica_that_succeeded_is_not_to_blame() -> None:
    logs: dict[str, str | bytes] = {
        "worker-0": VICTIM.format("KeyError: 'cache'") + "going on\ndone\n",
        "worker-1": VICTIM.format("ConnectionRefusedError: [Errno 111] Connection refused"),
        "ps-0": "",
    }
    error = failed(logs, by="worker-1", codes={"worker-0": 0})
    assert error.message.startswith("worker-1 ended with exit code 1: ConnectionRefusedError")
    assert "KeyError" not in text(error)
    # Nor does it count among those that failed by the same.
    logs["worker-0"] = logs["worker-1"]
    assert "2 replicas" not in text(failed(logs, by="worker-1", codes={"worker-0": 0}))


def test_a_connection_that_was_lost_long_ago_makes_no_victim() -> None:
    logs: dict[str, str | bytes] = {
        "worker-0": VICTIM.format("ConnectionResetError: x") + "step\n" * 500 + "no data left\n",
        "worker-1": VICTIM.format("ValueError: by the stop"),
    }
    error = failed(logs, codes={"worker-0": 3})
    assert error.message == "worker-0 ended with exit code 3."
    assert error.traceback[-1] == "[worker-0] no data left"


def test_a_replica_that_was_stopped_is_to_blame_for_its_last_words_only() -> None:
    cause = VICTIM.format("ValueError: the cause")
    logs: dict[str, str | bytes] = {
        "worker-0": VICTIM.format("ConnectionResetError: x"),
        "worker-1": cause,
    }
    # It hung after its error, until the stop ended it.
    assert failed(logs).message == "worker-1 was killed by SIGTERM: ValueError: the cause"
    # It went on after it.
    logs["worker-1"] = cause + "INFO: step\n" * 20
    assert failed(logs).message.startswith("worker-0 ended with exit code 1: ConnectionReset")


def test_exit_codes_and_signals_by_name() -> None:
    assert exit_text(3) == "exit code 3"
    assert exit_text(-9) == "SIGKILL"
    assert exit_text(-11) == "SIGSEGV"
    assert exit_text(-99) == "signal 99"


def test_an_exit_without_a_traceback_shows_the_last_lines() -> None:
    said = "\n".join(f"line {n}" for n in range(100)) + "\n\n\n"
    error = failed({"worker-0": said}, codes={"worker-0": 3})
    assert error.message == "worker-0 ended with exit code 3."
    assert error.traceback == tuple(f"[worker-0] line {n}" for n in range(90, 100))
    assert error.hint == "The whole log is in /jobs/mnist/logs/worker-0.log."


@pytest.mark.parametrize("word", ["StartError", "ContainerCannotRun"])
def test_a_program_that_did_not_start_is_explained(word: str) -> None:
    why = 'exec: "python3": executable file not found in $PATH'
    one = ReplicaStatus(JOB.replicas[0], State.FAILED, 0.0, 128, f"{word}: {why}")
    error = explain(Failure(JOB, Status(State.FAILED, (one,), 0.0), {}, Path("/nowhere")))
    assert error.message == f"worker-0 did not start: {why}."


def test_the_exceptions_of_all_replicas_are_known() -> None:
    logs = {"worker-0": python("1/0") + "E1130 torch/distributed: failed\n", "worker-1": "fine\n"}
    zero = {Replica("worker", 0): "ZeroDivisionError: division by zero"}
    assert failed(logs, codes={"worker-1": 1}).exceptions == zero
    logs["worker-1"] = python("raise ConnectionError('again')") + "epoch 3\n"  # it caught that
    assert failed(logs).exceptions == zero


def test_a_deadline_needs_no_replica() -> None:
    error = failed({}, by="", message="the job ran longer than its deadline of 5 s.")
    assert error.message == "the job ran longer than its deadline of 5 s."


# ------------------------------------------------------------------------------------ hints


@pytest.mark.parametrize(
    ("said", "hint"),
    [
        ("FileNotFoundError: [Errno 2] No such file or directory: 'data.csv'", "%files=data.csv"),
        (
            f"FileNotFoundError: [Errno 2] No such file or directory: '{PLACE}/data.csv'",
            "%files=data.csv",
        ),
        (
            'FileNotFoundError: [Errno 2] No such file or directory: "it\'s.csv"',
            "%files='it'\"'\"'s.csv'",
        ),
        ("x.errors_impl.NotFoundError: data.csv; No such file or directory", "%files=data.csv"),
        ("ModuleNotFoundError: No module named 'helper'", "%files=helper.py"),
        ("ModuleNotFoundError: No module named 'pkg.sub'", "%files=pkg"),
        (
            "ModuleNotFoundError: No module named 'seaborn'",
            "Add %packages=seaborn, which installs it for this job, or name a Python",
        ),
        ("OSError: [Errno 98] Address already in use", "get new ports"),
        ("torch.distributed.DistNetworkError: EADDRINUSE, message", "get new ports"),
        ("RuntimeError: failed (errno: 98 - in use)", "get new ports"),
        ("RuntimeError: failed (EADDRINUSE)", "get new ports"),
        ("OSError: [Errno 28] No space left on device", "The disk is full"),
        ("OSError: [Errno 122] Disk quota exceeded", "The disk is full"),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried", "a smaller batch"),
        ("MemoryError", "out of memory"),
        ("FileNotFoundError: [Errno 2] No such file or directory: 'other'", "whole log"),
        ("FileNotFoundError: [Errno 2] No such file or directory: '../data.csv'", "whole log"),
        ("FileNotFoundError: [Errno 2] No such file or directory: '/data.csv'", "whole log"),
        ("ValueError: x", "whole log"),
    ],
)
def test_hints(tmp_path: Path, said: str, hint: str) -> None:
    for name in ("data.csv", "it's.csv", "helper.py", "pkg/sub.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert hint in failed({"worker-0": VICTIM.format(said)}, folder=tmp_path).hint


WHOLE_LOG = "The whole log is in /jobs/mnist/logs/worker-0.log."
GRPC = """E0000 00:00:1795335190.836461   19664 add_port.cc:83] Failed to add port to server: \
No address added out of total 1 resolved for '0.0.0.0:50667'
E0000 00:00:1795335190.840030   19664 grpc_server_lib.cc:618] UNKNOWN: Could not start gRPC server
"""
GRPC_ERROR = "tensorflow.python.framework.errors_impl.UnknownError: Could not start gRPC server"
NCCL = "node-1:42:77 [0] misc/socket.cc:331 NCCL WARN Call to bind failed: Address already in use\n"
NCCL_ERROR = """[rank0]: torch.distributed.DistBackendError: NCCL error in: NCCLUtils.hpp:268
[rank0]: ncclSystemError: System call (e.g. socket, malloc) or external library call failed"""
LISTEN = (
    "torch.distributed.DistNetworkError: The server socket has failed to listen on any local "
    "network address. port: 40011, useIpv6: false, code: -98, name: EADDRINUSE, message: address"
)


@pytest.mark.parametrize(
    ("said", "hint"),
    [
        ("NameError: name 'lr' is not defined", "add %input=lr and `from ciao_input import lr`."),
        ("NameError: name 'helper' is not defined", "%input=helper"),
        ("NameError: name 'lr' is not defined. Did you mean: 'lo'?", "%input=lr"),
        ("NameError: name 'other' is not defined", "The whole log"),
        ("NameError: name '_secret' is not defined", "The whole log"),
        ("NameError: name 'socket' is not defined", "The whole log"),
        ("NameError: name 'display' is not defined", "display is IPython's, and a job is"),
        ("NameError: name 'get_ipython' is not defined", "run it in a plain cell."),
        ("EOFError: EOF when reading a line", "A job has no input: give the program its values"),
        ("EOFError: EOF when reading a line", "breakpoint() opens a prompt, but"),
        ("EOFError: Ran out of input", "The whole log"),
    ],
)
def test_a_variable_of_the_notebook_is_offered(said: str, hint: str) -> None:
    def helper() -> None: ...

    helper.__module__ = "__main__"
    variables = {"lr": 0.1, "helper": helper, "_secret": 1, "socket": open, "In": []}
    assert hint in failed({"worker-0": VICTIM.format(said)}, variables=variables).hint


@pytest.mark.parametrize(
    ("name", "header", "replicas", "place", "hint"),
    [
        ("output", "%output=output/\n", 1, "folder", "%output has made the folder output before"),
        (f"{PLACE}/output", "%output=m output/\n", 3, "folder", "%output has made the folder"),
        ("./output/", "%output=output/\n", 1, "namespace", "%output has made the folder output"),
        ("output", "%output=model/\n", 1, "folder", "The whole log"),
        ("output", "%output=model/\n", 3, "folder", "another one may have made output: use os."),
        ("samples/a", "", 3, "folder", "another one may have made samples/a: use os.makedirs with"),
        ("it's", "", 3, "folder", "another one may have made it's: "),
        ("samples", "", 1, "folder", "The whole log"),
        ("samples", "", 3, "namespace", "The whole log"),
        ("/data/samples", "", 3, "folder", "The whole log"),
    ],
)
def test_who_has_made_a_folder_before_is_told(
    name: str, header: str, replicas: int, place: str, hint: str
) -> None:
    job = replace(
        JOB,
        header=f"%framework=python\n{header}",
        replicas=JOB.replicas[:replicas],
        kind_of_place=place,
    )
    said = VICTIM.format(f"FileExistsError: [Errno 17] File exists: {name!r}")
    assert hint in failed({"worker-0": said}, job=job).hint


@pytest.mark.parametrize("variables", [{"lr": 0.1}, {}])
def test_an_import_is_offered_for_a_name_that_the_header_gives(variables: dict[str, Any]) -> None:
    job = replace(JOB, header="%framework=tensorflow\n%input=rows lr\n")
    said = VICTIM.format("NameError: name 'lr' is not defined")
    hint = failed({"worker-0": said}, variables=variables, job=job).hint
    assert hint == "%input brings lr to the job; add `from ciao_input import lr` to the code."


QUIT = """> /jobs/mnist/work/ciao_cell.py(3)<module>()
-> print(1)
(Pdb) Traceback (most recent call last):
  File "/jobs/mnist/work/ciao_cell.py", line 3, in <module>
    print(1)
  File "/usr/lib/python3.11/bdb.py", line 115, in dispatch_line
    if self.quitting: raise BdbQuit
                      ^^^^^^^^^^^^^
bdb.BdbQuit
"""


def test_a_debugger_that_has_no_input_is_told_from_one_that_a_person_has_left() -> None:
    assert "so a debugger gets no command. breakpoint() opens" in failed({"worker-0": QUIT}).hint
    assert failed({"worker-0": QUIT.replace("(Pdb) ", "")}).hint == WHOLE_LOG


PER_REPLICA = (
    "ValueError: Attempt to convert a value (PerReplica:{0: <tf.Tensor>}) with an unsupported type "
    "(<class 'tensorflow.python.distribute.values.PerReplica'>) to a Tensor."
)
PER_WORKER = (
    "NotImplementedError: use `create_per_worker_dataset` of ClusterCoordinator, distributed"
)
NO_APEX = "ModuleNotFoundError: No module named 'apex'"
TENSORBOARD = "tensorboard: Address already in use, trying 6007\n"


@pytest.mark.parametrize(
    "said",
    [
        f"WARNING: {NO_APEX} (optional)\n" + VICTIM.format("ValueError: bad shape"),
        VICTIM.format(NO_APEX) + "going on\n" + VICTIM.format("ValueError: bad shape"),
        VICTIM.format(NO_APEX)
        + "\nDuring handling of the above exception, another exception occurred:\n\n"
        + VICTIM.format("ValueError: bad shape"),
        TENSORBOARD + VICTIM.format("ValueError: bad shape"),
        TENSORBOARD + VICTIM.format("ConnectionResetError: [Errno 104] Connection reset by peer"),
        f"{NO_APEX}\n{TENSORBOARD}" + "step\n" * 20 + "no data left\n",
        TENSORBOARD + "step\n" * 60 + VICTIM.format(GRPC_ERROR),
        *(
            before + "step\n" * 50 + VICTIM.format("KeyError: 'label'")
            for before in (
                "WARNING: skipping batch: CUDA out of memory. Tried to allocate 20.00 MiB\n",
                VICTIM.format("torch.OutOfMemoryError: CUDA out of memory. Tried") + "going on\n",
                VICTIM.format("numpy._core._exceptions._ArrayMemoryError: x") + "going on\n",
                "W: no cache: OSError: [Errno 28] No space left on device\n",
                "W: no cache: OSError: [Errno 122] Disk quota exceeded\n",
            )
        ),
    ],
)
def test_no_hint_comes_from_what_the_program_did_without(said: str) -> None:
    assert failed({"worker-0": said}).hint == WHOLE_LOG


@pytest.mark.parametrize(
    ("said", "hint"),
    [
        (VICTIM.format(PER_REPLICA), "%packages=tf_keras and %envvar=TF_USE_LEGACY_KERAS=1"),
        (VICTIM.format(PER_WORKER), "%packages=tf_keras and %envvar=TF_USE_LEGACY_KERAS=1"),
        (VICTIM.format("ValueError: unsupported type PerReplica"), WHOLE_LOG),
        (GRPC + VICTIM.format(GRPC_ERROR), "get new ports"),
        (VICTIM.format(GRPC_ERROR) + GRPC, "get new ports"),
        (NCCL + ranked(0, "x").replace("[rank0]: x\n", NCCL_ERROR), "get new ports"),
        (ranked(0, LISTEN) + TORCHRUN[TORCHRUN.index("E1121") :], "get new ports"),
        (ranked(0, LISTEN) + ranked(1, "torch.distributed.DistNetworkError: x"), "get new ports"),
        ("step\n" * 20 + "F1121 bind: Address already in use\n", "get new ports"),
        (
            "step\n" * 20 + f"Error while finding spec ({NO_APEX})\n",
            "Add %packages=apex, if that is",
        ),
        (
            VICTIM.format(NO_APEX)
            + "\nThe above exception was the direct cause of the following exception:\n\n"
            + VICTIM.format("RuntimeError: Failed to import fast.optim"),
            "Add %packages=apex, if that is",
        ),
        (
            VICTIM.format(LOADER.replace("ValueError: bad sample 7", NO_APEX)),
            "Add %packages=apex, if that is",
        ),
        (python(f"raise ExceptionGroup('g', [ModuleNotFoundError({NO_APEX[21:]!r})])"), "apex,"),
        (
            ranked(1, "torch.OutOfMemoryError: CUDA out of memory. Tried")
            + ranked(0, NCCL_ERROR.replace("[rank0]: ", "")),
            "a smaller batch",
        ),
    ],
)
def test_hints_of_libraries_that_say_the_cause_elsewhere(said: str, hint: str) -> None:
    assert hint in failed({"worker-0": said}).hint


@pytest.mark.parametrize(
    ("said", "ports"),
    [
        ("RuntimeError: [enforce fail at gloo/transport/tcp/device.cc:84]", True),
        ("RuntimeError: c10d: no store", True),
        ("RendezvousClosedError", True),
        ("RuntimeError: The server socket has failed", True),
        ("OSError: cannot bind", True),
        ("RuntimeError: failed to listen", True),
        ("torch.distributed.DistStoreError: x", True),
        ("torch.distributed.DistError: x", True),
        ("RuntimeError: NCCL error", True),
        ("ValueError: rebind the weights", False),
        ("ValueError: unlistened", False),
    ],
)
def test_a_port_that_is_taken_matters_to_what_needs_one(said: str, ports: bool) -> None:
    for beside in ("Address already in use", "code: EADDRINUSE", "x (errno: 98 - taken)"):
        hint = failed({"worker-0": f"W: {beside}\n{VICTIM.format(said)}"}).hint
        assert ("get new ports" in hint) == ports
    assert failed({"worker-0": VICTIM.format(said)}).hint == WHOLE_LOG


def test_a_program_that_is_a_file_gets_the_missing_one_by_an_option(tmp_path: Path) -> None:
    (tmp_path / "data.csv").touch()
    said = VICTIM.format("FileNotFoundError: [Errno 2] No such file or directory: 'data.csv'")
    hint = failed({"worker-0": said}, folder=tmp_path).hint
    assert "next to your code; add a line %files=data.csv to send it" in hint
    job = replace(JOB, program=f"{JOB.workdir}/train.py")
    hint = failed({"worker-0": said}, folder=tmp_path, job=job).hint
    assert "add --files data.csv, or a line #%files=data.csv, to send it" in hint


def test_the_file_that_was_missing_last_is_named(tmp_path: Path) -> None:
    (tmp_path / "cache.bin").touch()
    (tmp_path / "data.csv").touch()
    missing = "FileNotFoundError: [Errno 2] No such file or directory: '{}'"
    said = f"WARNING {missing.format('cache.bin')}\n" + VICTIM.format(missing.format("data.csv"))
    assert "%files=data.csv" in failed({"worker-0": said}, folder=tmp_path).hint
    # What cannot be delivered is passed over.
    said = f"{missing.format('data.csv')}\n{VICTIM.format(missing.format('/etc/other'))}"
    assert "%files=data.csv" in failed({"worker-0": said}, folder=tmp_path).hint
    said = VICTIM.format(missing.format("x" * 5000))
    assert failed({"worker-0": said}, folder=tmp_path).hint == WHOLE_LOG


def test_the_module_that_was_missing_last_is_named(tmp_path: Path) -> None:
    missing = "ModuleNotFoundError: No module named '{}'"
    link = "\nThe above exception was the direct cause of the following exception:\n\n"
    said = link.join(VICTIM.format(missing.format(name)) for name in ("speedups", "pkg"))
    assert "Add %packages=pkg, if" in failed({"worker-0": said}, folder=tmp_path).hint


ON_CLUSTER = replace(
    JOB,
    backend="kubernetes",
    kind_of_place="namespace",
    header="%framework=tensorflow\n%memory=2Gi\n%ps=1;%memory=512Mi\n%worker=2;%cpu=1\n",
)


@pytest.mark.parametrize(
    ("said", "hint"),
    [
        ("ModuleNotFoundError: No module named 'einops.layers'", "%packages=einops,"),
        ("ModuleNotFoundError: No module named 'einops'", "with %image."),
        ("OSError: [Errno 28] No space left on device: 'x'", "The pod's disk is full."),
        ("OSError: [Errno 98] Address already in use", "the operator fixes the port"),
        ("ModuleNotFoundError: No module named 'sklearn.svm'", "Add %packages=scikit-learn, or"),
        ("ModuleNotFoundError: No module named 'apex'", "=apex, if that is the name of its"),
        (
            "ModuleNotFoundError: No module named 'sklern.svm'",
            "Did you mean sklearn? Add %packages=sklern, if that",
        ),
        (
            "MemoryError",
            "The limit of worker-0 is %memory=2Gi, and it used all of it: try %memory=4Gi, or",
        ),
    ],
)
def test_hints_on_a_cluster_are_about_pods(said: str, hint: str) -> None:
    found = failed({"worker-0": VICTIM.format(said)}, job=ON_CLUSTER).hint
    assert hint in found
    assert "pip install" not in found


@pytest.mark.parametrize(
    ("header", "registry", "told"),
    [
        ("", "", True),
        ("%registry=r.example/team/cells\n", "", False),
        ("", "r.example/team/cells", False),
    ],
)
def test_packages_on_a_cluster_need_a_registry(header: str, registry: str, told: bool) -> None:
    said = VICTIM.format("ModuleNotFoundError: No module named 'einops'")
    job = replace(ON_CLUSTER, header=header)
    one = ReplicaStatus(replica("worker-0"), State.FAILED, 0.0, 1)
    status = Status(State.FAILED, (one,), decided_by=replica("worker-0"))
    tails = {replica("worker-0"): said.encode()}
    hint = explain(Failure(job, status, tails, Path("/nowhere"), registry=registry)).hint
    assert ("%registry=HOST/PATH" in hint) is told


@pytest.mark.parametrize(
    ("by", "header", "hint"),
    [
        (
            "worker-0",
            ON_CLUSTER.header,
            "The limit of worker-0 is %memory=2Gi, and it used all of it: try %memory=4Gi",
        ),
        ("ps-0", ON_CLUSTER.header, "try %memory=1024Mi, or smaller batches"),
        ("worker-0", "%framework=pytorch\n%worker=2\n", "There is no %memory,"),
        ("worker-0", "%args=%memory=9Gi\n", "There is no %memory,"),
        ("worker-0", "%worker=1;%memory=1.5Gi\n", "try %memory=3Gi, or"),
        ("worker-0", "%memory=1e9\n", "try a higher %memory, or"),
    ],
)
def test_who_was_killed_for_memory_is_told_the_limit(by: str, header: str, hint: str) -> None:
    ended = ReplicaStatus(replica(by), State.FAILED, exit_code=137, reason="OOMKilled")
    status = Status(State.FAILED, (ended,), decided_by=replica(by))
    error = explain(Failure(replace(ON_CLUSTER, header=header), status, {}, Path("/nowhere")))
    assert "OOMKilled" in error.message
    assert hint in error.hint


@pytest.mark.parametrize(
    ("header", "why", "hint"),
    [
        ("", "x: not found", "add %image=IMAGE, or set it for all jobs with `ciao config images."),
        ("", "x: not found", "`ciao config images.tensorflow=IMAGE`."),
        ("", "pull access denied for x", "IMAGE`. %imagePullSecret=NAME names a Secret"),
        ("%image=x\n", "x: not found", "Correct %image, or make the image available"),
        ("%image=x\n", "x: not found", "%imagePullSecret=NAME"),
        ("%worker=1;%image=x\n", "x: not found", "Correct %image,"),
        ("%packages=einops\n%image=x\n", "x: not found", "The image was built for this job;"),
        ("%packages=einops==0.8\n", "x: not found", "The image was built for this job;"),
        ("%worker=2;%memory=1Gi\n%args=%image=x\n", "x: not found", "There is no %image"),
        ("%worker=2\n%args='a;image=b'\n", "x: not found", "There is no %image"),
        ("%worker=2\n%envvar=A='b;%image=c'\n", "x: not found", "There is no %image"),
    ],
)
@pytest.mark.parametrize(
    "word", ["ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName"]
)
def test_an_image_that_cannot_be_pulled_has_a_remedy(
    word: str, header: str, why: str, hint: str
) -> None:
    one = ReplicaStatus(replica("worker-0"), State.PENDING, reason=f"Failed: {why}")
    message = f"worker-0 cannot start: {one.reason}"
    status = Status(
        State.FAILED, (one,), reason=word, message=message, decided_by=one.replica, hopeless=True
    )
    header = f"%framework=tensorflow\n{header}"
    error = explain(Failure(replace(ON_CLUSTER, header=header), status, {}, Path("/nowhere")))
    assert error.message == message
    assert hint in error.hint
    missing = replace(status, reason="CreateContainerConfigError")  # a Secret, for example
    assert "%image" not in explain(Failure(ON_CLUSTER, missing, {}, Path("/nowhere"))).hint


@pytest.mark.parametrize(
    ("why", "labelled"),
    [('"restricted:latest": root', True), ('"baseline:v1.30": hostPath', False)],
)
def test_pods_that_pod_security_refuses_have_a_remedy(why: str, labelled: bool) -> None:
    one = ReplicaStatus(replica("worker-0"), State.PENDING)
    message = f"Kubernetes cannot create its pods: FailedCreate: violates PodSecurity {why}"
    status = Status(State.FAILED, (one,), reason="FailedCreate", message=message, hopeless=True)
    error = explain(Failure(ON_CLUSTER, status, {}, Path("/nowhere")))
    assert error.message == message
    assert error.hint.startswith("A %podPatch can set the fields")
    assert ("enforce=restricted" in error.hint) is labelled
    other = replace(status, message="Kubernetes cannot create its pods: FailedCreate: no")
    assert explain(Failure(ON_CLUSTER, other, {}, Path("/nowhere"))).hint == ""


def unpulled(header: str, why: str) -> str:
    """Return the hint of a job whose image could not be pulled."""
    one = ReplicaStatus(replica("worker-0"), State.PENDING, reason=f"Failed: {why}")
    status = Status(State.FAILED, (one,), reason="ErrImagePull", message=f"worker-0: {why}")
    status = replace(status, decided_by=one.replica)
    return explain(Failure(replace(ON_CLUSTER, header=header), status, {}, Path("/nowhere"))).hint


@pytest.mark.parametrize(
    "why",
    [
        *("401 Unauthorized", "403 Forbidden", "access denied", "authentication required"),
        *("authorization failed", "no basic auth credentials"),
    ],
)
def test_a_registry_that_asks_for_a_password_is_given_a_secret(why: str) -> None:
    assert "%imagePullSecret" in unpulled("%framework=tensorflow\n", why)
    assert "%imagePullSecret" not in unpulled("%framework=tensorflow\n", "not found")


@pytest.mark.parametrize(
    "line",
    [
        *("%packages=a", "%requirements=a.txt", "%base=a", "%registry=a", "%apt=a"),
        *("%condaEnv=a", "%dockerfile=a", "%s2iBuilder=a", "%worker=1; %apt = a"),
    ],
)
def test_an_image_that_ciao_built_is_not_called_the_users(line: str) -> None:
    assert unpulled(f"%image=x\n{line}\n", "not found").startswith("The image was built")


def test_readings_of_the_killed_replica_replace_the_limit() -> None:
    def after_kill(one: Replica) -> str:
        return f"{one} grew." if one.role == "worker" else ""

    def hint(by: str, reason: str, said: str = "") -> str:
        ended = ReplicaStatus(replica(by), State.FAILED, exit_code=137, reason=reason)
        status = Status(State.FAILED, (ended,), decided_by=replica(by))
        tails = {replica(by): said.encode()}
        return explain(
            Failure(ON_CLUSTER, status, tails, Path("/nowhere"), after_kill=after_kill)
        ).hint

    assert hint("worker-0", "OOMKilled") == "worker-0 grew."
    assert hint("ps-0", "OOMKilled").startswith("The limit of ps-0 is %memory=512Mi")
    assert "grew" not in hint("worker-0", "Error", "MemoryError\n")  # no kill: no limit was hit


def test_a_replica_of_this_machine_may_be_killed_for_memory() -> None:
    more = "The machine may have run out of memory: try fewer replicas, or smaller batches."
    assert failed({}, codes={"worker-0": -9}).hint == more
    assert ends(end(0, -9, "Error")).hint == more
    assert failed({}, codes={"worker-0": -11}).hint == WHOLE_LOG


def test_an_evicted_pod_is_no_matter_of_memory() -> None:
    ended = ReplicaStatus(replica("worker-0"), State.FAILED, exit_code=-9, reason="Evicted")
    status = Status(State.FAILED, (ended,), decided_by=ended.replica)
    assert "memory" not in explain(Failure(ON_CLUSTER, status, {}, Path("/nowhere"))).hint
    killed = Status(State.FAILED, (replace(ended, reason=""),), decided_by=ended.replica)
    assert "%memory=2Gi" in explain(Failure(ON_CLUSTER, killed, {}, Path("/nowhere"))).hint


@pytest.mark.parametrize(
    ("code", "reason", "how"),
    [
        (-9, "Evicted: The node was low on it.", "failed: Evicted: The node was low on it."),
        (-15, "Terminated: imminent node shutdown", "failed: Terminated: imminent node shutdown."),
        (-9, "deleted", "was killed by SIGKILL."),
        (-11, "Evicted", "was killed by SIGSEGV."),
    ],
)
def test_a_replica_that_the_cluster_has_killed_tells_why(code: int, reason: str, how: str) -> None:
    status = Status(State.FAILED, (end(0, code, reason),))
    found = explain(Failure(ON_CLUSTER, status, {}, Path("/nowhere")))
    assert found.message == f"worker-0 {how}"


@pytest.mark.parametrize(
    ("reason", "header", "retries", "hint"),
    [
        ("Evicted", "", 0, "%retries=3 starts the job again after such a loss, and %checkpoint"),
        (
            "NodeShutdown",
            "%checkpoint=a\n",
            0,
            "%retries=3 starts the job again after such a loss.",
        ),
        ("Terminated: node shutdown", "", 1, "%checkpoint keeps what the program saves: the next"),
        ("Terminated: node shutdown", "%checkpoint=a\n", 1, WHOLE_LOG),
        ("Evicted: Pod ephemeral storage exceeds the total limit of 1Gi.", "", 0, "disk is full"),
        ("DeadlineExceeded", "", 0, WHOLE_LOG),
        ("deleted", "", 0, WHOLE_LOG),
    ],
)
def test_who_lost_a_replica_to_its_node_is_told_of_a_new_start(
    reason: str, header: str, retries: int, hint: str
) -> None:
    ended = replace(end(0, -15, reason), log="/jobs/mnist/logs/worker-0.log")
    status = Status(State.FAILED, (ended,), decided_by=ended.replica)
    job = replace(ON_CLUSTER, header=header, retries=retries)
    assert hint in explain(Failure(job, status, {}, Path("/nowhere"))).hint


def test_a_program_that_may_not_write_to_a_volume_has_a_remedy() -> None:
    ended = ReplicaStatus(replica("worker-0"), State.FAILED, exit_code=1)
    status = Status(State.FAILED, (ended,), decided_by=ended.replica)
    job = replace(ON_CLUSTER, header="%framework=tensorflow\n%volume=team:/runs\n")
    said = VICTIM.format("PermissionError: [Errno 13] Permission denied: '/runs/one'")
    error = explain(Failure(job, status, {replica("worker-0"): said.encode()}, Path("/nowhere")))
    assert "may not write to the volume team in /runs" in error.hint


def test_a_process_that_was_killed_is_told_by_torchrun_beside_a_traceback() -> None:
    said = f"{KILLED}{ranked(1, 'RuntimeError: Connection closed by peer')}"
    error = failed({"worker-0": said})
    assert "Connection closed" in error.message
    assert "memory" in error.hint
    # Where no traceback is, what the program wrote last may be the reason.
    for words in ("CUDA out of memory", "std::bad_alloc, MemoryError"):
        said = f"terminate called: {words}\n" + "frame\n" * 20
        assert "memory" in failed({"worker-0": said}, codes={"worker-0": -6}).hint


def test_words_far_above_the_end_give_no_hint() -> None:
    said = "OSError: [Errno 28] No space left on device\n" + "step\n" * 300
    assert failed({"worker-0": said}, codes={"worker-0": 3}).hint == WHOLE_LOG


@pytest.mark.parametrize(
    ("said", "free", "full"),
    [
        ("", 0, True),
        ("", 500_000, True),
        ("", 10**12, False),
        # Another disk is the full one, or there is room by now.
        (VICTIM.format("OSError: [Errno 28] No space left on device"), 10**12, True),
    ],
)
def test_a_disk_may_be_too_full_to_say_so(
    said: str, free: int, full: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def usage(place: str) -> SimpleNamespace:
        assert place == JOB.files
        return SimpleNamespace(free=free)

    monkeypatch.setattr(shutil, "disk_usage", usage)
    assert failed({"worker-0": said}).hint.startswith("The disk is full.") == full


def test_a_file_that_is_not_beside_the_code_cannot_be_sent(tmp_path: Path) -> None:
    folder = tmp_path / "here"
    folder.mkdir()
    for name in ("data.csv", "here/own.csv"):
        (tmp_path / name).touch()
    missing = "FileNotFoundError: [Errno 2] No such file or directory: '{}'"
    for name in (f"{folder}/own.csv", "../data.csv"):
        said = VICTIM.format(missing.format(name))
        assert failed({"worker-0": said}, folder=folder).hint == WHOLE_LOG


def test_where_no_log_is_kept_none_is_named() -> None:
    assert failed({"worker-0": ""}, log="").hint == ""


# ---------------------------------------------------------------------------------- verdicts


def judged(
    state: State,
    message: str = "",
    describe_leftovers: Callable[[Job], str] | None = None,
    log: str = "/jobs/mnist/worker-0.log",
) -> JobError | None:
    one = ReplicaStatus(JOB.replicas[0], State.FAILED, 0.0, 1, log=log)
    status = Status(state, (one,), message=message, settled=True)
    return judge(JOB, status, {}, Path("/nowhere"), describe_leftovers)


def test_a_job_that_went_well_is_no_error() -> None:
    assert judged(State.SUCCEEDED) is None
    assert judged(State.RUNNING) is None


def test_a_job_that_was_stopped_says_by_whom_and_what_is_left() -> None:
    found = judged(State.STOPPED, "by you", lambda job: f"the logs of {job.name} are kept")
    assert isinstance(found, JobStopped)
    assert found.message == "mnist was stopped (by you)."
    assert found.hint == "The logs of mnist are kept."
    assert str(judged(State.STOPPED)) == "mnist was stopped."


@pytest.mark.parametrize(
    ("message", "describe_leftovers"),
    [("deleted", lambda job: "its logs"), ("by you", None), ("by you", lambda job: "")],
)
def test_nothing_is_said_to_be_left_of_a_job_of_which_nothing_is(
    message: str, describe_leftovers: Callable[[Job], str] | None
) -> None:
    found = judged(State.STOPPED, message, describe_leftovers)
    assert isinstance(found, JobStopped)
    assert found.hint == ""


def test_a_log_that_is_not_there_or_removed_next_is_not_named(tmp_path: Path) -> None:
    log = tmp_path / "worker-0.log"
    never_written = judged(State.FAILED, describe_leftovers=lambda job: "its logs", log=str(log))
    assert never_written is not None
    assert never_written.hint == ""
    log.touch()
    kept = judged(State.FAILED, describe_leftovers=lambda job: "its logs", log=str(log))
    assert kept is not None
    assert kept.hint == f"The whole log is in {log}."
    # The system refuses to look for a name of this length.
    unknown = judged(State.FAILED, describe_leftovers=lambda job: "its logs", log="x" * 5000)
    assert unknown is not None
    assert unknown.hint == ""
    removed = judged(State.FAILED, log=str(log))
    assert isinstance(removed, JobFailed)
    assert (removed.message, removed.hint) == ("worker-0 ended with exit code 1.", "")


def test_a_verdict_takes_all_that_is_known_into_account(tmp_path: Path) -> None:
    (tmp_path / "data.csv").touch()
    variables = {"rows": [1]}

    def hint(said: str, reason: str = "", job: Job = JOB) -> str:
        one = ReplicaStatus(replica("worker-0"), State.FAILED, 0.0, 1, reason=reason)
        status = Status(State.FAILED, (one,), decided_by=one.replica)
        tails = {one.replica: VICTIM.format(said).encode()} if said else {}
        found = judge(
            job,
            status,
            tails,
            tmp_path,
            lambda _: "its logs",
            variables,
            lambda who: f"{who} grew.",
        )
        assert isinstance(found, JobFailed)
        assert found.job == "mnist"
        return found.hint

    assert "%files=data.csv" in hint("E: [Errno 2] No such file or directory: 'data.csv'")
    assert "%input=rows" in hint("NameError: name 'rows' is not defined")
    assert hint("", "OOMKilled", ON_CLUSTER) == "worker-0 grew."


def test_a_job_that_is_followed_without_a_notebook_missed_no_variable() -> None:
    one = ReplicaStatus(replica("worker-0"), State.FAILED, 0.0, 1)
    status = Status(State.FAILED, (one,), decided_by=one.replica)
    said = VICTIM.format("NameError: name 'rows' is not defined").encode()
    found = judge(JOB, status, {one.replica: said}, Path("/nowhere"), None)
    assert isinstance(found, JobFailed)
    assert "NameError: name 'rows'" in found.message
    assert found.hint == ""


# ------------------------------------------------------------------------------ hostile text


def test_commands_to_terminals_are_taken_out() -> None:
    said = VICTIM.format("ValueError: \x1b[31mred\x1b[0m \x1b]0;title\x07\x1b[2J\x07\x00end")
    error = failed({"worker-0": b"\xff\xfe\n" + said.replace("\n", "\r\n").encode()})
    assert error.message.endswith("ValueError: red end")
    assert "\x1b" not in text(error) + error.message
    link = "\x1b]8;;http://x\x1b\\here\x1b]8;;\x1b\\"
    said = VICTIM.format(f"ValueError: {link}\x1b[m \x1b(Bthe\x1b= end\x1b")
    assert failed({"worker-0": said}).message.endswith("ValueError: here the end")


def test_html_stays_text_for_whoever_shows_it() -> None:
    evil = "<script>alert(1)</script>"
    error = failed({"worker-0": VICTIM.format(f"ValueError: {evil}")})
    assert evil in error.message
    assert html.escape(evil) not in error.message


def test_huge_logs_give_errors_that_can_be_read() -> None:
    deep = "".join(f'  File "x.py", line {n}, in f\n    f()\n' for n in range(5000))
    said = f"Traceback (most recent call last):\n{deep}ValueError: {'y' * 100_000}\n"
    error = failed({"worker-0": said})
    assert len(error.message) < 2000
    assert len(error.traceback) < 110
    assert max(map(len, error.traceback)) < 2000
    error = failed({"worker-0": "z" * 1_000_000 + "\r" + "w" * 500_000})
    assert len(text(error)) < 2000


@given(st.binary(max_size=300), st.binary(max_size=300))
def test_no_log_breaks_it(one: bytes, other: bytes) -> None:
    start = b"\nTraceback (most recent call last):\n"
    group = b"\n  + Exception Group Traceback (most recent call last):\n  | "
    logs = {"worker-0": one + start + other, "worker-1": group + other + start + one}
    error = failed(logs)
    for name, repeated in error.repeats.items():
        lines = logs[str(name)].removesuffix(b"\n").split(b"\n")
        assert {place: lines[-place] for place in repeated} == repeated


def test_the_lines_that_an_error_repeats_are_found_in_any_log() -> None:
    log = f"\x1b]0;ti\ntle\x07\nstep\r\n{VICTIM.format('ValueError: no')}\x1b[31m[worker-3] end\n"
    error = failed({"worker-0": log.replace("Trace", "\x1b[1mTrace")})
    lines = log.replace("Trace", "\x1b[1mTrace").encode().splitlines()
    assert error.repeats == {replica("worker-0"): dict(zip((4, 3, 2), lines[3:6], strict=True))}


@pytest.mark.parametrize("link", tracebacks.CHAINED)
def test_an_error_repeats_all_lines_of_a_chain(link: str) -> None:
    log = f"{VICTIM.format('KeyError: 1')}\n{link}\n\n{VICTIM.format('ValueError: no')}"
    repeated = failed({"worker-0": f"step\n{log}"}).repeats[replica("worker-0")]
    assert list(repeated.values()) == log.encode().splitlines()


REPEATED = [
    *(" ", "a.", "\x1b[", "x; No such file ", "[rank1]: ", "a.py:1", "\n"),
    *("Traceback (most recent call last):\n", "Traceback (most recent call last):\nE: x\n"),
    f"{NO_APEX}\n",
    VICTIM.format("E: x") + "\nDuring handling of the above exception, another exception "
    "occurred:\n\n",
]
"""A part of each kind of line, repeated."""
MORE_REPEATED = [
    *("a", "a<locals>.", "\x1b]", "\x1b]8;", "| ", "'", "\r", "\t"),
    *("[rank", "1", "1/", "[a1", "Traceback (most recent call last):"),
    "xTraceback (most recent call last):\n",
    *("[rank1]: Traceback (most recent call last):\n", " \n", "a\n", "| \n"),
    *("  + Exception Group Traceback (most recent call last):\n", "+ Exception Group "),
    *("I1121 torch/distributed", "I1121 x.cc:1", "a:1:1 [1] ", NO_APEX),
]


@pytest.mark.parametrize(
    "unit",
    [
        *REPEATED,
        *(pytest.param(unit, marks=pytest.mark.second("docs")) for unit in MORE_REPEATED),
    ],
)
def test_the_work_grows_as_the_log_does(unit: str) -> None:
    def work(size: int) -> None:
        long = unit * (size // len(unit))
        failed(
            {
                "worker-0": long,
                "worker-1": VICTIM.format(long),
                "ps-0": f"{VICTIM.format('E: x')}{long}\n{long}",
            }
        )

    assert is_linear(work, 256 * 1024)


@pytest.mark.parametrize("rank", ["", "[rank1]: "])
def test_the_number_of_a_process_is_no_part_of_its_traceback(rank: str) -> None:
    trace = ("Traceback (most recent call last):", '  File "x.py", line 1', "ValueError: one")
    said = [f"[1] {rank}{line}\n" for line in trace]
    said.insert(1, "[0] step 3\n")
    error = failed({"worker-0": "".join(said)})
    assert error.traceback == trace
    assert error.message.endswith("ValueError: one")


def test_a_process_that_was_aborted_for_its_peers_is_not_the_cause() -> None:
    logs: dict[str, str | bytes] = {
        "worker-0": VICTIM.format("RuntimeError: Connection closed by peer"),
        "worker-1": "terminate called after throwing an instance of 'c10::DistBackendError'\n",
        "ps-0": VICTIM.format("ValueError: mine"),
    }
    error = failed(logs, codes={"worker-1": -6, "ps-0": 1})
    assert error.message.endswith("ValueError: mine")


def test_torchruns_report_does_not_hide_a_traceback_behind_a_signal() -> None:
    said = VICTIM.format("ValueError: mine") + "terminate called without an active exception\n"
    for short_or_long in (TORCHRUN[TORCHRUN.index("E1121") :], report(0, -6)):
        error = failed({"worker-0": said + short_or_long}, codes={"worker-0": -6})
        assert error.message == "worker-0 was killed by SIGABRT: ValueError: mine"
