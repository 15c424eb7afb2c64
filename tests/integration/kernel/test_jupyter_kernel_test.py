"""The whole of jupyter_kernel_test, with every sample that an IPython kernel can answer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import ipykernel
import jupyter_kernel_test
import pytest
from jupyter_kernel_test.msgspec_v5 import validate_message

from tests.helpers.kernels import WAIT, Kernel, Place, start_kernel

pytestmark = pytest.mark.stands_for("oldest")
QUIET = """
import threading
kernel, sent = get_ipython().kernel, threading.Event()
kernel._publish_status = lambda *_, **__: None
kernel.iopub_thread.schedule(sent.set)
sent.wait()
"""
"""Ends what a kernel says by itself; what it has begun to say is sent then."""


@pytest.fixture(scope="class")
def one_kernel(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[None]:
    """What setUpClass would do, with this place's kernelspec and environment."""
    place = Place(tmp_path_factory.mktemp("place"))
    kernel = Kernel(place)
    request.cls.km, request.cls.kc = kernel.manager, kernel.kc
    yield
    del request.cls.km, request.cls.kc
    kernel.shutdown(now=True)


@pytest.fixture(scope="class")
def kernel_without_client(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[None]:
    """Start a kernel to whose messages for all nobody has subscribed.

    An XPUB socket passes on a subscription only if no other client has it. After a client that has
    just left there may be no event, and so no welcome.
    """
    manager = start_kernel(Place(tmp_path_factory.mktemp("place")))
    # On a busy machine the kernel may still be starting, and say so before it welcomes anybody.
    asks = manager.blocking_client()
    asks.start_channels(iopub=False, stdin=False, hb=False, control=False)
    asks.kernel_info()
    asks.get_shell_msg(timeout=WAIT)
    # It says "idle" after each reply, and a welcome must not come behind that.
    sent = asks.execute(QUIET)
    while asks.get_shell_msg(timeout=WAIT)["parent_header"].get("msg_id") != sent:
        pass
    asks.shell_channel.stop()  # not stop_channels(), which would make the other ones first
    asks.context.destroy(linger=0)
    request.cls.km, request.cls.kc = manager, manager.blocking_client()
    yield
    request.cls.kc.stop_channels()
    request.cls.kc.context.destroy(linger=0)
    del request.cls.km, request.cls.kc
    manager.shutdown_kernel(now=True)
    manager.cleanup_resources()


class Prepared:
    @classmethod
    def setUpClass(cls) -> None:
        pass

    @classmethod
    def tearDownClass(cls) -> None:
        pass


class Patient:
    """Runs cells with the checks of `KernelTests`, which gives a message a tenth of a second.

    On a busy machine one may come later, and then among those of the next request.
    """

    def execute_helper(self: Any, code: str, **options: Any) -> tuple[Any, list[Any]]:
        sent = self.kc.execute(code=code, **options)
        reply = self.get_non_kernel_info_reply(timeout=WAIT)
        validate_message(reply, "execute_reply", sent)
        messages, told = [], list[str]()
        while "idle" not in told:
            message = self.kc.get_iopub_msg(timeout=WAIT)
            if message["parent_header"].get("msg_id") != sent:
                continue
            validate_message(message, message["msg_type"], sent)
            if message["msg_type"] == "status":
                told.append(message["content"]["execution_state"])
            else:
                assert told == ["busy"]
                messages.append(message)
        assert told == ["busy", "idle"]
        inputs = [one["content"]["code"] for one in messages if one["msg_type"] == "execute_input"]
        assert set(inputs) <= {code}
        return reply, [one for one in messages if one["msg_type"] != "execute_input"]


@pytest.mark.usefixtures("one_kernel")
class TestKernel(Prepared, Patient, jupyter_kernel_test.KernelTests):
    language_name = "python"
    file_extension = ".py"
    code_hello_world = "print('hello, world')"
    code_stderr = "import sys; print('test', file=sys.stderr)"
    completion_samples = (
        {"text": "zi", "matches": {"zip"}},
        {"text": "%framew", "matches": {"%framework="}},
        {"text": "%framework=tens", "matches": {"tensorflow"}},
    )
    complete_code_samples = ("1", "print('hello')", "def f(x):\n  return x*2\n\n\n", "%time 1")
    complete_code_samples += ("%framework=tensorflow\n%worker=2\nprint(1)",)
    incomplete_code_samples = ("print('''hello", "def f(x):\n  x*2", "%framework=tensorflow")
    incomplete_code_samples += ("%framework=tensorflow\nfor i in range(3):",)
    invalid_code_samples = ("import = 7q", "%framework=tensorflow\nimport = 7q")
    code_page_something = "zip?"
    code_generate_error = "raise ValueError"
    code_execute_result = (
        {"code": "1+2+3", "result": "6"},
        {"code": "[n*n for n in range(1, 4)]", "result": "[1, 4, 9]"},
    )
    code_display_data = (
        {"code": "from IPython.display import HTML, display; display(HTML('<b>a</b>'))",
         "mime": "text/html"},
        {"code": "from IPython.display import Math; display(Math('a'))", "mime": "text/latex"},
    )  # fmt: skip
    code_history_pattern = "1?2*"
    # Not "range": asked for this session by its number, IPython answers with 0, which the test
    # takes for another (test_plain_cells.py has the same reply from python3).
    supported_history_operations = ("tail", "search")
    code_inspect_sample = "zip"
    code_clear_output = "from IPython.display import clear_output; clear_output()"


@pytest.mark.usefixtures("kernel_without_client")
class TestWelcome(Prepared, jupyter_kernel_test.IopubWelcomeTests):
    # ipykernel 6 has no XPUB socket: there the test would wait for ever.
    support_iopub_welcome = ipykernel.version_info >= (7,)


def test_no_sample_is_missing() -> None:
    """Every switch of jupyter_kernel_test is set above."""
    base = vars(jupyter_kernel_test.KernelTests)
    switches = {name for name, value in base.items() if value in ("", [], (), False)}
    assert len(switches) > 10
    assert switches <= set(vars(TestKernel)) | {"support_iopub_welcome"}
