"""20,000 lines a second for ten seconds: nothing is lost that the cell claims to have shown."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Callable

import nbformat
import pytest
from nbclient import NotebookClient

from tests.helpers.colors import uncolored
from tests.helpers.kernels import Place
from tests.helpers.servers import Page, Server, serving

Figure = Callable[[str], None]

pytestmark = pytest.mark.slow

# Four replicas, 5,000 lines a second each.
FLOOD = """\
%framework=tensorflow
%worker=4
%lines=all
import time
start = time.monotonic()
for batch in range(1000):
    print("\\n".join(f"line {number:06}" for number in range(batch * 50, batch * 50 + 50)))
    time.sleep(max(0, start + batch / 100 - time.monotonic()))
"""
_LINE = re.compile(r"\[(worker-\d)\] line (\d{6})")
_LEFT_OUT = re.compile(r"… ([\d,]+) lines of .* not shown here …")
_CLOSING = re.compile(r"([\d,]+) of ([\d,]+) lines are shown")


def check(text: str, place: Place) -> str:
    """Hold what a cell shows against the logs of its job; return a sentence for the summary."""
    (folder,) = place.job_folders()
    logs = sorted((folder / "logs").glob("worker-*.log"))
    written = {log.stem: log.read_bytes().count(b"\n") for log in logs}
    shown: dict[str, list[int]] = {name: [] for name in written}
    left_out, closing = 0, None
    for line in uncolored(text).splitlines():
        if found := _LINE.fullmatch(line):
            shown[found[1]].append(int(found[2]))
        elif found := _LEFT_OUT.fullmatch(line):
            left_out += number(found[1])
        elif found := _CLOSING.match(line):
            closing = (number(found[1]), number(found[2]))
        else:
            raise AssertionError(f"what is {line!r}?")
    assert list(written.values()) == [50_000] * 4
    for numbers in shown.values():
        assert numbers == sorted(set(numbers)), "lines came twice or out of order"
        assert numbers[-1] == max(numbers)
    total, visible = sum(written.values()), sum(map(len, shown.values()))
    assert visible + left_out == total
    assert closing == (visible, total)
    assert all(count > 1000 for count in map(len, shown.values())), "a replica was starved"
    return f"{total:,} lines written, {visible:,} shown, {left_out:,} counted as left out"


def number(text: str) -> int:
    return int(text.replace(",", ""))


@pytest.fixture
def user(place: Place, monkeypatch: pytest.MonkeyPatch) -> Place:
    """This process itself works in the place."""
    for name, value in place.env.items():
        monkeypatch.setenv(name, value)
    # However slow this machine is, each replica gets the time to write all of its lines.
    monkeypatch.setenv("CIAO_LINGER", "60")
    place.env["CIAO_LINGER"] = "60"
    return place


def test_through_nbclient(user: Place, figure: Figure) -> None:
    notebook = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(FLOOD), nbformat.v4.new_code_cell("print('after')")]
    )
    client = NotebookClient(
        notebook,
        timeout=200,
        kernel_name="ciao",
        resources={"metadata": {"path": str(user.work)}},
        iopub_timeout=60,
        raise_on_iopub_timeout=True,
    )
    started = time.monotonic()
    client.execute()
    took = time.monotonic() - started
    job, after = (cell.outputs for cell in notebook.cells)
    texts = [output for output in job if output.output_type == "stream"]
    assert {output.name for output in texts} == {"stdout"}
    figure(f"{check(''.join(output.text for output in texts), user)}, in {took:.1f} s")
    (table,) = [output for output in job if output.output_type == "display_data"]
    assert "Succeeded" in table.data["text/plain"]
    assert after[0].text == "after\n"


@pytest.mark.second("trials")
@pytest.mark.alone  # a server that was held up gets much at once, and takes that for the rate
def test_through_jupyter_server(user: Place, figure: Figure) -> None:
    async def browse(server: Server) -> None:
        kernel = server.start_kernel()
        page = await Page.open(server, kernel)
        started = time.monotonic()
        messages = await page.finish(await page.execute(FLOOD))
        took = time.monotonic() - started
        streams = [m["content"] for m in messages if m["msg_type"] == "stream"]
        text = "".join(content["text"] for content in streams)
        assert "rate exceeded" not in text
        assert "rate exceeded" not in server.log.read_text()
        size = sum(len(json.dumps(message)) for message in messages)
        figure(
            f"{check(text, user)}, in {took:.1f} s; "
            f"{len(messages) / took:.0f} messages and {size / took / 1000:.0f} kB a second"
        )
        tables = [m for m in messages if m["msg_type"].endswith("display_data")]
        assert "Succeeded" in tables[-1]["content"]["data"]["text/plain"]
        after = await page.finish(await page.execute("print('after')"))
        assert "after\n" in [m["content"].get("text") for m in after]
        assert server.ask(f"/api/kernels/{kernel}")["execution_state"] == "idle"
        page.close()

    with serving(user) as server:
        asyncio.run(browse(server))
