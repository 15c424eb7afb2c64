"""A long installation before a job has a bar in its cell, in a real kernel."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.helpers.packages import Index, serving


@pytest.fixture
def index() -> Iterator[Index]:
    with serving() as made:
        made.add("app", "1.0")
        made.stall.clear()
        yield made


def bars(request: Any) -> list[tuple[str, dict[str, str], str]]:
    """Kind of message, texts and ID of each message of the bar."""
    found = [
        (kind, one["data"], one["transient"]["display_id"])
        for kind in ("display_data", "update_display_data")
        for one in request.of(kind)
    ]
    names = {name for _, data, name in found if data["text/plain"].startswith("installing app")}
    return [one for one in found if one[2] in names]


def test_an_installation_has_a_bar_that_becomes_a_line(kernel: Any, index: Index) -> None:
    header = f"%framework=tensorflow\n%worker=1\n%pipIndex={index.url}\n%packages=app\n"
    request = kernel.execute(header + "import app; print(app.version)\n")
    kernel.wait(lambda: len(bars(request)) > 1, "a bar that is updated")
    index.stall.set()
    done = kernel.finish(request)
    assert done.status == "ok", done.of("error")
    assert "installing app" not in done.text  # the bar has taken the sentence's place
    assert "[pip]" not in done.text  # text that comes later would stand below the bar
    first, *updates = bars(done)
    assert first[0] == "display_data"
    assert first[1]["text/plain"] == "installing app …"
    assert {one[0] for one in updates} == {"update_display_data"}
    assert len({one[2] for one in (first, *updates)}) == 1
    last = updates[-1][1]
    assert last["text/plain"].startswith("installing app: done in ")
    assert "installing app: done in " in last["text/html"]


def test_an_interrupt_removes_the_bar(kernel: Any, index: Index) -> None:
    header = f"%framework=tensorflow\n%worker=1\n%pipIndex={index.url}\n%packages=app\n"
    request = kernel.execute(header + "import app\n")
    kernel.wait(lambda: len(bars(request)) > 1, "a bar behind its first sentence")
    kernel.interrupt()
    done = kernel.finish(request)
    assert done.status == "error"
    assert set(bars(done)[-1][1].values()) == {""}
