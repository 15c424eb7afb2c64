"""What else a kernel does while a job cell runs, and where each output goes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import ipykernel
import pytest

from tests.helpers.kernels import JOB, SILENT, Client, Kernel, Place, Request
from tests.helpers.servers import Page, Server, serving

Start = Callable[..., Kernel]
Figure = Callable[[str], None]

QUESTIONS: dict[str, dict[str, Any]] = {
    "kernel_info_request": {},
    "complete_request": {"code": "import os; os.pat", "cursor_pos": 17},
    "inspect_request": {"code": "zip", "cursor_pos": 3, "detail_level": 0},
    "is_complete_request": {"code": "for i in range(3):"},
    "history_request": {"hist_access_type": "tail", "n": 5, "output": False, "raw": True},
    "comm_info_request": {},
}
STEADY = (
    JOB
    + "%lines=all\nimport time\n"
    + "for i in range(6000):\n    print('ready', i, flush=True)\n    time.sleep(.1)"
)


@pytest.fixture(scope="module")
def lasting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kernel]:
    place = Place(tmp_path_factory.mktemp("place"))
    kernel = Kernel(place)
    yield kernel
    kernel.shutdown(now=True)
    place.kill_all()


@pytest.fixture
def place(lasting: Kernel) -> Iterator[Place]:
    yield lasting.place
    lasting.place.kill_all()


@pytest.fixture
def kernel(lasting: Kernel, place: Place) -> Kernel:
    """The same for all tests here that do not ask for one of their own."""
    lasting.take(0.1)
    lasting.requests.clear()
    lasting.strangers.clear()
    return lasting


@pytest.fixture
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kernel]:
    """A kernel in which nothing has run yet."""
    place = Place(tmp_path_factory.mktemp("fresh"))
    kernel = Kernel(place)
    yield kernel
    kernel.shutdown(now=True)
    place.kill_all()


def ask_all(client: Client) -> float:
    """Ask everything once; the longest that an answer took."""
    longest = 0.0
    for kind, content in QUESTIONS.items():
        started = time.monotonic()
        assert client.ask(kind, content)["status"] == "ok" or kind == "is_complete_request"
        longest = max(longest, time.monotonic() - started)
    return longest


def stop(kernel: Kernel, request: Request) -> None:
    kernel.interrupt()
    kernel.finish(request)
    assert request.error == "KeyboardInterrupt"


def until_file(name: str, place: Place) -> str:
    """Code that waits, as a cell may, until the test makes a file where the user works."""
    path = str(place.work / name)
    return f"import asyncio, os\nwhile not os.path.exists({path!r}): await asyncio.sleep(.01)\n"


# ------------------------------------------------------------------------------- answers


def test_questions_are_answered(kernel: Kernel, place: Place, figure: Figure) -> None:
    ask_all(kernel)  # The first completion imports jedi.
    request = kernel.execute(STEADY)
    kernel.wait_running(request, place)
    # The best of five rounds: what others do on this machine is not the kernel's.
    rounds = sorted(ask_all(kernel) for _ in range(5))
    figure(f"slowest answer of a round {rounds[0] * 1000:.0f} to {rounds[-1] * 1000:.0f} ms")
    assert request.reply is None, "they were answered behind the job"
    stop(kernel, request)


def test_first_completion_is_answered_too(fresh: Kernel, figure: Figure) -> None:
    request = fresh.execute(STEADY)
    fresh.wait_running(request, fresh.place)
    took = ask_all(fresh)  # It imports jedi, as in python3.
    figure(f"{took * 1000:.0f} ms")
    assert request.reply is None, "they were answered behind the job"
    stop(fresh, request)


def test_kernel_is_shown_busy_until_the_job_ends(kernel: Kernel, place: Place) -> None:
    """The last status that any page saw is the kernel's, whatever request it came with."""
    seen = []
    sort = kernel._sort

    def watch(channel: str, message: dict[str, Any]) -> None:
        if message["msg_type"] == "status":
            of = message["parent_header"]["msg_type"]
            seen.append((of, message["content"]["execution_state"]))
        sort(channel, message)

    kernel._sort = watch  # type: ignore[method-assign]
    request = kernel.execute(STEADY)
    kernel.wait_running(request, place)
    for kind, content in QUESTIONS.items():
        asked = kernel.send(kind, content)
        kernel.wait(lambda a=asked: a.done, "answer")
        kernel.wait(lambda: seen[-1] == ("execute_request", "busy"), "busy again")
        kernel.take(0.1)
        assert asked.states == ["busy", "idle"]
        assert seen[-1] == ("execute_request", "busy")
    stop(kernel, request)
    kernel.take(0.3)
    assert seen[-1] == ("execute_request", "idle")
    assert request.states == ["busy"] * (1 + len(QUESTIONS)) + ["idle"]
    assert request.events.count("reply") == 1
    # shell and iopub are two sockets, so only the kernel's own order can be told: outputs,
    # then idle as the last of all, but for the end of a job that takes its time to stop.
    shown = [event for event in request.events if event != "reply"]
    behind = shown[shown.index("status:idle") + 1 :]
    assert not behind or "is stopping: " in request.text, (behind, request.text[-200:])
    assert set(behind) <= {"stream", "update_display_data"}


def test_question_that_stands_in_line_before_the_job(kernel: Kernel, place: Place) -> None:
    """A page that is reloaded while a plain cell runs, with a job behind it, is not left alone."""
    first = kernel.execute("import time; time.sleep(1)")
    job = kernel.execute(SILENT)
    asked = [kernel.send(kind, content) for kind, content in QUESTIONS.items()]
    kernel.wait_running(job, place)
    kernel.wait(lambda: all(one.reply is not None for one in asked), "answers")
    assert first.status == "ok"
    assert job.reply is None
    stop(kernel, job)


def test_question_keeps_its_turn_among_plain_cells(kernel: Kernel, place: Place) -> None:
    """Only a job is passed by: what a plain cell defines can be completed behind it."""
    kernel.execute(f"{until_file('asked', place)}a_long_name_of_mine = 1")
    asked = kernel.send("complete_request", {"code": "a_long_na", "cursor_pos": 9})
    kernel.execute("del a_long_name_of_mine")
    (place.work / "asked").touch()
    kernel.wait(lambda: asked.reply is not None, "completion")
    assert asked.reply["content"]["matches"] == ["a_long_name_of_mine"]


def test_questions_while_the_job_ends(kernel: Kernel) -> None:
    """Questions at every moment of short jobs: each cell has one reply and one idle."""
    for _ in range(5):
        request = kernel.execute(JOB + "print('short')")
        asked = []
        while not request.done:
            asked.append(kernel.send("kernel_info_request", {}))
            kernel.take(0.002)
        kernel.wait(lambda a=asked: all(one.done for one in a), "answers")
        follower = kernel.run("import asyncio; await asyncio.sleep(.01); print('next')")
        assert (request.states.count("idle"), follower.text) == (1, "next\n")
        assert follower.states == ["busy", "idle"]


def test_reloaded_page(tmp_path_factory: pytest.TempPathFactory, figure: Figure) -> None:
    """A second page on a Jupyter Server's kernel knows at once that it is busy."""

    def printed(page: Page, job: str) -> bool:
        told = (m["content"]["text"] for m in page.about(job) if m["msg_type"] == "stream")
        return "ready" in "".join(told)

    def last(page: Page) -> tuple[str, str]:
        told = [m for m in page.messages if m["msg_type"] == "status"][-1]
        return told["parent_header"]["msg_type"], told["content"]["execution_state"]

    async def browse(server: Server) -> None:
        kernel = server.start_kernel()
        first = await Page.open(server, kernel)
        job = await first.execute(STEADY)
        while not printed(first, job):
            await first.read()
        first.close()
        second = await Page.open(server, kernel)
        started = time.monotonic()
        asked = await second.send("kernel_info_request", {})
        info = await second.finish(asked)
        figure(f"{(time.monotonic() - started) * 1000:.0f} ms to kernel_info")
        assert "ciao" in [m["content"].get("implementation") for m in info]
        while not printed(second, job) or last(second) != ("execute_request", "busy"):
            await second.read()
        assert server.ask(f"/api/kernels/{kernel}")["execution_state"] == "busy"
        server.ask(f"/api/kernels/{kernel}/interrupt", {})
        # The reply goes to the first page, which is gone; the others live by what all are told.
        while "idle" not in [m["content"].get("execution_state") for m in second.about(job)]:
            await second.read()
        assert "KeyboardInterrupt" in [m["content"].get("ename") for m in second.about(job)]
        second.close()

    place = Place(tmp_path_factory.mktemp("place"))
    with serving(place) as server:
        asyncio.run(browse(server))
    place.wait_empty()


# ------------------------------------------------------------------------------ submission


def test_probe_submits_nothing(fresh: Kernel) -> None:
    for options in ({"silent": True}, {"store_history": False}):
        for code in (JOB + "print('ran')", "%%ciao\n" + JOB + "print('ran')"):
            request = fresh.run(code, **options)
            assert request.reply is not None
            # A sender that expects a job must not believe that it has succeeded.
            assert request.reply["content"]["status"] == "error"
            assert next(iter(options)) in request.reply["content"]["evalue"]
            # Silence means: nothing in the cell.
            assert bool(request.of("error")) == ("silent" not in options)
            assert request.text == ""
    assert fresh.place.job_folders() == []
    assert fresh.place.all_processes() == []
    reply = fresh.run("1").reply
    assert reply is not None
    assert reply["content"]["execution_count"] == 1


def test_silent_command_changes_nothing(kernel: Kernel) -> None:
    command = "%ciao config output_rate=54321"
    refused = kernel.run(command, silent=True)
    assert refused.error == "UsageError"
    assert "54321" not in kernel.run("%ciao config").text
    assert kernel.run(command).error == ""
    assert "54321" in kernel.run("%ciao config").text
    assert kernel.run("%ciao config output_rate=800000").error == ""


# ------------------------------------------------------------------------ order and history


def test_history_and_counts(fresh: Kernel) -> None:
    job = JOB + "print('in history')"
    fresh.run("a = 1")
    request = fresh.run(job)
    assert request.reply is not None
    assert request.reply["content"]["execution_count"] == 2
    assert request.of("execute_input")[0]["execution_count"] == 2
    failed = fresh.run(JOB + "1/0")
    assert failed.reply is not None
    assert (failed.error, failed.reply["content"]["execution_count"]) == ("JobFailed", 3)
    found = fresh.run("(In[2], _ih[3], _i2, len(In))").of("execute_result")[0]
    assert eval(found["data"]["text/plain"]) == (job, JOB + "1/0", job, 5)
    assert job in fresh.run("%history").text
    history = fresh.ask(
        "history_request", {"hist_access_type": "tail", "n": 5, "output": False, "raw": True}
    )["history"]
    assert job in [entry[2] for entry in history]
    expressions = fresh.run(JOB + "pass", user_expressions={"a": "a + 1"}).reply
    assert expressions is not None
    assert expressions["content"]["user_expressions"]["a"]["data"]["text/plain"] == "2"


def test_cells_behind_a_failed_job_are_aborted(kernel: Kernel, place: Place) -> None:
    path = str(place.work / "all-are-sent")
    wait = f"import os, time\nwhile not os.path.exists({path!r}): time.sleep(.01)\n"
    failing = kernel.execute(f"{JOB}{wait}raise ValueError('no')")
    queued = [kernel.execute("print('never')"), kernel.execute(JOB + "print('never')")]
    Path(path).touch()
    for request in (failing, *queued):
        kernel.finish(request)
    assert failing.error == "JobFailed"
    assert [request.status for request in queued] == ["aborted", "aborted"]
    assert kernel.run("1").status == "ok"
    unstopped = kernel.execute(JOB + "raise ValueError('no')", stop_on_error=False)
    after = kernel.execute("print('yes')")
    assert kernel.finish(after).text == "yes\n"
    assert unstopped.error == "JobFailed"


def test_reply_and_error_message_agree(kernel: Kernel) -> None:
    request = kernel.run(JOB + "raise ValueError('no')")
    (shown,) = request.of("error")
    assert request.reply is not None
    assert {key: request.reply["content"][key] for key in shown} == shown
    assert shown["ename"] == "JobFailed"
    assert "ValueError: no" in shown["evalue"]
    assert "ciao_kernel" not in "\n".join(shown["traceback"])
    # Output, then the error, then idle.
    assert request.events.index("error") > max(
        i for i, event in enumerate(request.events) if event in ("stream", "display_data")
    )


# -------------------------------------------------------------------- whose output is whose


def test_output_of_threads_and_tasks(kernel: Kernel, place: Place) -> None:
    """What a plain cell left running prints while a job runs; no line of either is lost."""
    plain = kernel.run(
        # Lines are written whole: print writes their parts, and others may come between.
        "import asyncio, sys, threading, time\n"
        "from IPython.display import display\n"
        "async def later():\n"
        "    for i in range(20):\n"
        "        sys.stdout.write(f'task {i}\\n'); await asyncio.sleep(.1)\n"
        "    display({'text/plain': 'rich from the task'}, raw=True)\n"
        "task = asyncio.ensure_future(later())\n"
        "def work():\n"
        "    for i in range(20): sys.stdout.write(f'thread {i}\\n'); time.sleep(.1)\n"
        "thread = threading.Thread(target=work); thread.start()"
    )
    job = kernel.execute(STEADY.replace("6000", "25"))
    while not job.done:
        kernel.ask("kernel_info_request", {})
        kernel.take(0.05)
    kernel.run("thread.join(); await task")
    text = plain.text
    # A task's output belongs to its cell, whatever runs meanwhile.
    assert [f"task {i}" in text for i in range(20)] == [True] * 20
    # (ipykernel 6 knows one cell at a time for rich output, in python3 too.)
    rich = [plain] if ipykernel.version_info >= (7,) else kernel.requests.values()
    assert any("rich from the task" in str(request.of("display_data")) for request in rich)
    # A thread's goes to its own cell or to the running one, never to nobody.
    everything = "".join(r.text for r in kernel.requests.values())
    assert [f"thread {i}\n" in everything for i in range(20)] == [True] * 20
    assert kernel.strangers == []
    lines = [line for line in job.text.splitlines() if "ready" in line]
    assert len(lines) == 50
    tables = [one for one in job.of("display_data") if "rich" not in str(one)]
    assert len(tables) == 1


def test_next_cells_output_is_its_own(kernel: Kernel, place: Place) -> None:
    job = kernel.run(JOB + "print('of the job')")
    plain = kernel.run("print('of the cell')\nprint(_job.state)")
    assert plain.text == "of the cell\nSucceeded\n"
    assert "of the cell" not in job.text
    assert kernel.run("from IPython.display import HTML; HTML('<b>')").of("execute_result")


def test_two_clients(kernel: Kernel, place: Place) -> None:
    """Two pages on one kernel: both see all output, each gets its own replies."""
    other = kernel.client()
    job = kernel.execute(STEADY)
    kernel.wait_running(job, place)
    waiting = other.execute("'from the other'")
    ask_all(other)

    def about_the_job() -> list[dict[str, Any]]:
        return [m for m in other.strangers if m["parent_header"].get("msg_id") == job.id]

    other.wait(lambda: any(m["msg_type"] == "stream" for m in about_the_job()), "the job's lines")
    assert waiting.reply is None
    assert job.reply is None
    seen = about_the_job()
    lines = "".join(m["content"]["text"] for m in seen if m["msg_type"] == "stream")
    assert lines
    assert {"status", "execute_input", "display_data", "stream"} <= {m["msg_type"] for m in seen}
    stop(kernel, job)
    assert lines in job.text
    # The other page's cell was in line behind the stopped one, so it is aborted.
    assert other.finish(waiting).status == "aborted"
    assert other.run("'from the other'").of("execute_result")
    kernel.wait(
        lambda: any("from the other" in str(m["content"]) for m in kernel.strangers), "its output"
    )
    replies = [m for m in kernel.strangers if m["msg_type"].endswith("_reply")]
    assert replies == [], "replies to the other page"
    other.close()


def test_comms(kernel: Kernel, place: Place) -> None:
    """A widget that a plain cell opened works before, during and after a job."""
    opened = kernel.run(
        "from comm import create_comm\n"
        "heard = []\n"
        "comm = create_comm(target_name='test')\n"
        "@comm.on_msg\n"
        "def hear(msg):\n"
        "    heard.append(msg['content']['data']); comm.send({'echo': msg['content']['data']})"
    )
    (opening,) = opened.of("comm_open")
    comm = opening["comm_id"]

    def say(data: str) -> Request:
        return kernel.send("comm_msg", {"comm_id": comm, "data": {"said": data}})

    first = say("before")
    kernel.wait(lambda: bool(first.of("comm_msg")), "echo before")
    job = kernel.execute(STEADY)
    kernel.wait_running(job, place)
    during = say("during")
    if ipykernel.version_info >= (7,):  # before, messages to comms wait for the cell's end
        kernel.wait(lambda: bool(during.of("comm_msg")), "echo during")
        assert job.reply is None, "it was heard behind the job"
    stop(kernel, job)
    kernel.wait(lambda: bool(during.of("comm_msg")), "echo")
    after = say("after")
    kernel.wait(lambda: bool(after.of("comm_msg")), "echo after")
    heard = kernel.run("[one['said'] for one in heard]").of("execute_result")[0]["data"]
    assert heard["text/plain"] == "['before', 'during', 'after']"
    assert job.states.count("idle") == 1


def test_widgets_of_the_job_table_are_one(kernel: Kernel) -> None:
    request = kernel.run(JOB + "import time\nfor i in range(8): print(i); time.sleep(.2)")
    (first,) = request.of("display_data")
    updates = request.of("update_display_data")
    assert updates
    ids = {one["transient"]["display_id"] for one in (first, *updates)}
    assert len(ids) == 1
    assert "Succeeded" in updates[-1]["data"]["text/plain"]
    assert "Succeeded" in updates[-1]["data"]["text/html"]


# ----------------------------------------------------------------------------------- misc


def test_run_a_file(kernel: Kernel, place: Place) -> None:
    (place.work / "train.py").write_text(
        "#%framework=tensorflow\n#%worker=2\nprint('ready', flush=True)\n"
    )
    request = kernel.run("%ciao run train.py")
    assert (request.status, request.text.count("ready")) == ("ok", 2)
    assert kernel.run("print(_job.state)").text == "Succeeded\n"


@pytest.mark.second("faults")
def test_broken_plugin_of_a_third_party(start_kernel: Start, tmp_path: Path) -> None:
    """It breaks the cells that ask for it, which say so, and no other."""
    plugins = tmp_path / "plugins"
    (plugins / "broken-1.0.dist-info").mkdir(parents=True)
    (plugins / "broken-1.0.dist-info" / "METADATA").write_text("Name: broken\nVersion: 1.0\n")
    (plugins / "broken-1.0.dist-info" / "entry_points.txt").write_text(
        "[ciao.frameworks]\nbroken = no_such_module:Framework\n"
    )
    kernel = start_kernel("ciao", {"PYTHONPATH": str(plugins)})
    assert kernel.run("%time 1").status == "ok"
    assert kernel.run("5 % 3").of("execute_result")
    question = {"code": "%timei", "cursor_pos": 6}
    assert "%timeit" in kernel.ask("complete_request", question)["matches"]
    assert kernel.ask("inspect_request", {**question, "detail_level": 0})["status"] == "ok"
    assert kernel.ask("is_complete_request", {"code": "%time 1"})["status"] == "complete"
    assert kernel.run(JOB + "print(1)").status == "ok"
    request = kernel.run("%framework=broken\n%worker=2\nprint(1)")
    assert request.status == "error"
    assert "broken" in str(request.of("error"))
    assert kernel.run("1").status == "ok"


@pytest.mark.second("faults")
def test_folder_of_the_notebook_is_gone(fresh: Kernel) -> None:
    fresh.run("import os, tempfile; folder = tempfile.mkdtemp(); os.chdir(folder)")
    fresh.run("os.rmdir(folder)")
    for code in ("%frame", JOB + "%fil", JOB + "%files=d"):
        fresh.ask("complete_request", {"code": code, "cursor_pos": len(code)})
    request = fresh.run(JOB + "print(1)")
    assert request.status == "error"
    assert fresh.run("1").status == "ok"
