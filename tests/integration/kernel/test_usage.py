"""``%usage=on``: what the replicas use, as columns of the live table."""

from __future__ import annotations

import re
from typing import Any

from tests.helpers.kernels import Kernel

BODY = (
    "import os, time\nkept = bytearray(150 << 20)\nprint('has it', flush=True)\n"
    "while not os.path.exists('go-on'): time.sleep(.02)\n"
)
_HEADS = re.compile(r"<th[^>]*>([^<]*)</th>")
_CELLS = re.compile(r"<td[^>]*>(?:<[a-z][^>]*></?[a-z]*>)*([^<]*)")


def row(html: str) -> dict[str, str]:
    """Return the cells of the first replica by their headings."""
    first = html.partition("<tbody>")[2].partition("</tr>")[0]
    return dict(zip(_HEADS.findall(html), _CELLS.findall(first), strict=True))


def test_the_table_shows_what_a_replica_uses_while_it_runs(shared: Kernel) -> None:
    header = "%framework=python\n%worker=2\n%name=eats\n%usage=on\n"
    request = shared.execute(header + BODY)

    def tables() -> list[str]:
        found = request.of("display_data") + request.of("update_display_data")
        return [html for one in found if "<table" in (html := one["data"].get("text/html", ""))]

    def measured() -> list[dict[str, str]]:
        return [one for one in map(row, tables()) if re.match(r"1[5-9]\dMi", one["memory"])]

    shared.wait(measured, "the memory of a replica")
    first = row(tables()[0])
    assert list(first) == [
        "replica", "state", "time", "cpu", "memory", "peak", "lines/s", "log", "last line",
    ]  # fmt: skip
    assert first["memory"] == "–"
    shown = measured()[0]
    assert re.fullmatch(r"\d\.\d\d", shown["cpu"])
    assert re.fullmatch(r"1[5-9]\dMi", shown["peak"])
    (shared.place.job_folders()[0] / "work" / "go-on").touch()
    done = shared.finish(request)
    assert done.status == "ok"
    last = row(tables()[-1])
    assert (last["cpu"], last["memory"]) == ("–", "–")
    assert re.fullmatch(r"1[5-9]\dMi", last["peak"])
    assert "%usage" not in done.text


def test_a_run_in_warm_replicas_is_measured_too(kernel: Any) -> None:
    body = "import time\nkept = bytearray(150 << 20)\ntime.sleep(600)\n"
    request = kernel.execute("%framework=python\n%worker=1\n%warm\n%usage=on\n" + body)

    def measured() -> bool:
        found = request.of("display_data") + request.of("update_display_data")
        tables = [html for one in found if "<table" in (html := one["data"].get("text/html", ""))]
        return any(row(html)["memory"].endswith("Mi") for html in tables)

    kernel.wait(measured, "the memory of a replica")
    kernel.interrupt()
    kernel.finish(request)
    assert "%usage" not in request.text


def test_a_wrong_value_is_one_clear_error(shared: Kernel) -> None:
    done = shared.run("%framework=python\n%worker=1\n%usage=much\nprint()\n")
    assert done.error == "DirectiveError"
    assert "one of on, off" in done.of("error")[0]["evalue"] + "".join(
        done.of("error")[0]["traceback"]
    )
