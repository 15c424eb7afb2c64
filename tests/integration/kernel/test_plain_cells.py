"""Plain cells behave in ciao as in python3: two real kernels, the same cells, one comparison."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.kernels import WAIT, Kernel, Place, Request

pytestmark = pytest.mark.stands_for("oldest")

CELLS = [
    "1 + 1",
    "x = 1; x",
    "'a' * 3;",
    "print('out'); import sys; print('err', file=sys.stderr)",
    "print('no end', end='')",
    "raise ValueError('boom')",
    "1 / 0",
    "def f(:",
    "undefined_name",
    "raise SystemExit(3)",
    "raise KeyboardInterrupt",
    "from IPython.display import HTML, display; display(HTML('<b>x</b>'))",
    "display({'text/plain': 'raw'}, raw=True, display_id='d1')",
    "display({'text/plain': 'new'}, raw=True, display_id='d1', update=True)",
    "from IPython.display import clear_output; print(1); clear_output(); print(2)",
    "import asyncio; await asyncio.sleep(0.01); 'awaited'",
    "await asyncio.gather(asyncio.sleep(0), asyncio.sleep(0))",
    "async def g():\n    raise KeyError('k')\nawait g()",
    "!echo from the shell",
    "y = !echo captured\ny",
    "%pwd",
    "%time pass",
    "%%time\nz = 5",
    "%%capture caught\nprint('hidden')",
    "caught.stdout",
    "%%writefile written.txt\nsome text",
    "%%bash\necho bash $((1 + 1))",
    "%%bash\nexit 3",
    "%load_ext no_such_extension",
    "%no_such_magic",
    "%%no_such_cell_magic\nbody",
    "%precision 3\n3.14159",
    "zip?",
    "zip??",
    "?zip",
    "*int*?",
    "%who str",
    "%history -n 1-2",
    "In[1], _ih[1], Out[1], _, __, _i",
    "_oh.keys()",
    "s = '''\n%framework=pytorch\n'''\ns",
    "a = 7\na %a if a else 1",
    "# %framework=pytorch\n'a comment'",
    "import threading; t = threading.Thread(target=print, args=('thread',)); t.start(); t.join()",
    "import signal; signal.getsignal(signal.SIGINT) is signal.default_int_handler",
    "get_ipython().set_next_input('next')",
    "import warnings; warnings.warn('careful', stacklevel=1)",
    "exit?",
    "",
    "   \n",
    "None",
    "é = 'ünïcode 🚀'; é",
    "%xmode Plain",
    "1 / 0",
]


PATIENT = "get_ipython().Completer.jedi_compute_type_timeout = 60_000"
"""On a busy machine jedi may not know the types of completions within IPython's 400 ms."""


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Kernel, Kernel]]:
    """A python3 kernel and a ciao kernel, each in a place of its own."""
    kernels = [Kernel(Place(tmp_path_factory.mktemp(name)), name) for name in ("python3", "ciao")]
    for kernel in kernels:
        kernel.run(PATIENT, store_history=False)
    yield kernels[0], kernels[1]
    for kernel in kernels:
        kernel.shutdown(now=True)


def normal(kernel: Kernel, value: Any) -> Any:
    """A message's content without what differs between any two kernels."""
    if isinstance(value, dict):
        return {k: normal(kernel, v) for k, v in value.items() if k not in ("engine_info", "date")}
    if isinstance(value, list):
        return [normal(kernel, one) for one in value]
    if isinstance(value, str):
        value = value.replace(str(kernel.place.folder), "PLACE")
        value = re.sub(r"ipykernel_\d+", "ipykernel_N", value)
        value = re.sub(r"0x[0-9a-f]+", "0xN", value)
        return re.sub(r"[\d.]+(?:e[+-]\d+)? (ns|[mµμu]?s)\b", "TIME", value)
    return value


def story(kernel: Kernel, request: Request) -> Any:
    """All that a kernel said about a request; how it cut its text into messages is not kept."""
    said: list[list[Any]] = []
    for message in request.messages:
        kind, content = message["msg_type"], normal(kernel, message["content"])
        last = said[-1][1] if said and said[-1][0] == "stream" else {}
        if kind == "stream" and last.get("name") == content["name"]:
            last["text"] += content["text"]
        else:
            said.append([kind, content])
    assert request.reply is not None
    # stdout and stderr have a buffer each, and which is sent first is a matter of chance.
    streams = sorted((one for one in said if one[0] == "stream"), key=str)
    rest = [one for one in said if one[0] != "stream"]
    return {"reply": normal(kernel, request.reply["content"]), "rest": rest, "streams": streams}


def test_cells_say_the_same(both: tuple[Kernel, Kernel]) -> None:
    different = []
    for code in CELLS:
        theirs, ours = (story(kernel, kernel.run(code)) for kernel in both)
        if theirs != ours:
            different.append(f"{code!r}\n  python3: {theirs}\n  ciao:    {ours}")
    assert not different, "\n".join(different)


@pytest.mark.parametrize(
    "options",
    [
        {"silent": True},
        {"store_history": False},
        {"user_expressions": {"a": "1 + 1", "b": "1 / 0"}},
        {"stop_on_error": False},
    ],
    ids=str,
)
@pytest.mark.parametrize("code", ["6 * 7", "print('x')", "raise ValueError('v')"])
def test_options_of_execute(
    both: tuple[Kernel, Kernel], code: str, options: dict[str, Any]
) -> None:
    theirs, ours = (story(kernel, kernel.run(code, **options)) for kernel in both)
    assert ours == theirs


@pytest.mark.parametrize(
    ("kind", "content"),
    [
        ("complete_request", {"code": "import os; os.pat", "cursor_pos": 17}),
        ("complete_request", {"code": "%timei", "cursor_pos": 6}),
        ("complete_request", {"code": "x = 5 % zi", "cursor_pos": 10}),
        ("complete_request", {"code": "a\n%loa", "cursor_pos": 6}),
        ("inspect_request", {"code": "zip", "cursor_pos": 3, "detail_level": 0}),
        ("inspect_request", {"code": "%time", "cursor_pos": 5, "detail_level": 0}),
        ("inspect_request", {"code": "nothing_of_that_name", "cursor_pos": 3, "detail_level": 1}),
        ("is_complete_request", {"code": "for i in range(3):"}),
        ("is_complete_request", {"code": "%time"}),
        ("is_complete_request", {"code": "%%time"}),
        ("is_complete_request", {"code": "a = ["}),
        ("comm_info_request", {}),
        ("history_request", {"hist_access_type": "range", "session": 1, "start": 1, "stop": 3,
                             "output": False, "raw": True}),
    ],
    ids=str,
)  # fmt: skip
def test_other_requests(both: tuple[Kernel, Kernel], kind: str, content: dict[str, Any]) -> None:
    theirs, ours = (normal(kernel, kernel.ask(kind, content)) for kernel in both)
    assert ours == theirs


def test_kernel_info_differs_only_by_name(both: tuple[Kernel, Kernel]) -> None:
    theirs, ours = (kernel.ask("kernel_info_request", {}) for kernel in both)
    assert ours["implementation"] == "ciao"
    # IPython's banner ends with a tip of the day.
    assert ours["banner"].partition("Tip:")[0].endswith(theirs["banner"].partition("Tip:")[0])
    for own in ("implementation", "implementation_version", "banner"):
        del theirs[own], ours[own]
    assert ours == theirs


def test_stdin(both: tuple[Kernel, Kernel]) -> None:
    code = "import getpass\nname = input('who? ')\nword = getpass.getpass('word? ')\n(name, word)"
    stories = []
    for kernel in both:
        request = kernel.execute(code, allow_stdin=True)
        for number, answer in enumerate(("me", "secret"), 1):
            kernel.wait(lambda n=number, r=request: len(r.inputs) == n, "a question")
            kernel.kc.input(answer)
        kernel.finish(request)
        asked = [message["content"] for message in request.inputs]
        stories.append((asked, story(kernel, request)))
    assert stories[0] == stories[1]
    assert "secret" in str(stories[1])


def test_stdin_that_is_not_allowed(both: tuple[Kernel, Kernel]) -> None:
    theirs, ours = (kernel.run("input()", allow_stdin=False) for kernel in both)
    assert ours.error == theirs.error == "StdinNotImplementedError"


def test_queued_cells_are_aborted_after_an_error(both: tuple[Kernel, Kernel]) -> None:
    for kernel in both:
        # So long ipykernel gives to what has been sent and not yet received; by default, nothing.
        kernel.run("get_ipython().kernel.stop_on_error_timeout = 5")
        path = str(kernel.place.work / "all-are-sent")
        fails = f"import os, time\nwhile not os.path.exists({path!r}): time.sleep(.01)\n1/0"
        requests = [kernel.execute(code) for code in (fails, "2", "3")]
        # ipykernel 7 aborts what its thread for messages has received at the error.
        kernel.take(1)
        Path(path).touch()
        for request in requests:
            kernel.finish(request)
        assert [request.status for request in requests] == ["error", "aborted", "aborted"]
        again = time.monotonic() + WAIT
        while (last := kernel.run("4").status) == "aborted":  # until that time is over
            assert time.monotonic() < again
        assert last == "ok"


# ------------------------------------------------------------------------------- debugger


class Debugger:
    """Speaks the debug adapter protocol to a kernel."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.number = 0

    def ask(self, command: str, **arguments: Any) -> dict[str, Any]:
        self.number += 1
        content = {
            "type": "request",
            "seq": self.number,
            "command": command,
            "arguments": arguments,
        }
        answer = self.kernel.ask("debug_request", content, control=True)
        assert answer.get("success"), f"{command}: {answer}"
        return answer.get("body", {})

    def events(self, name: str) -> list[dict[str, Any]]:
        everything = [m for request in self.kernel.requests.values() for m in request.messages]
        everything += self.kernel.strangers
        events = [m["content"] for m in everything if m["msg_type"] == "debug_event"]
        return [event for event in events if event.get("event") == name]


@pytest.mark.parametrize("name", ["python3", "ciao"])
def test_debugger_stops_at_a_breakpoint_and_goes_on(start_kernel: Any, name: str) -> None:
    pytest.importorskip("debugpy")
    kernel = start_kernel(name)
    debugger = Debugger(kernel)
    debugger.ask(
        "initialize",
        clientID="test",
        adapterID="",
        pathFormat="path",
        linesStartAt1=True,
        columnsStartAt1=True,
    )
    debugger.ask("attach")
    code = "a = 1\nb = a + 1\nprint('b is', b)"
    path = debugger.ask("dumpCell", code=code)["sourcePath"]
    found = debugger.ask(
        "setBreakpoints",
        source={"path": path},
        breakpoints=[{"line": 2}],
        sourceModified=False,
    )
    assert found["breakpoints"][0]["verified"]
    assert debugger.ask("debugInfo")["isStarted"]
    debugger.ask("configurationDone")

    request = kernel.execute(code)
    kernel.wait(lambda: bool(debugger.events("stopped")), "stopped")
    stopped = debugger.events("stopped")[0]["body"]
    thread = stopped["threadId"]
    frames = debugger.ask("stackTrace", threadId=thread)["stackFrames"]
    assert (frames[0]["line"], frames[0]["source"]["path"]) == (2, path)
    assert not request.done
    assert request.text == ""
    debugger.ask("continue", threadId=thread)
    kernel.finish(request)
    assert request.text == "b is 2\n"
    debugger.ask("disconnect", restart=False, terminateDebuggee=True)
    assert kernel.run("b").of("execute_result")[0]["data"]["text/plain"] == "2"
