"""``ciao`` in a terminal: colours, the live table, windows of every size."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from tests.helpers.colors import COLOR, uncolored
from tests.helpers.packages import serving
from tests.integration.cli.command import FAILS, HEADER, LONG, QUICK, Screen, User, until


def test_the_screen_of_these_tests_draws_as_a_terminal_does() -> None:
    assert Screen(10, 5).feed("ab\r\ncd\x1b[1A\r\x1b[2Kx\r\n\r\n") == ["x", "cd", ""]
    assert Screen(4, 5).feed("abcdef\r\ng") == ["abcdef", "g"]


def test_lines_stand_above_a_table_that_is_drawn_in_place(ciao: User) -> None:
    text = (
        "import os, time\nfor i in range(12):\n    print('step', i, flush=True)\n"
        "while not os.path.exists('go-on'): time.sleep(0.01)\n"
    )
    ciao.file("train.py", HEADER + text)
    terminal = ciao.terminal("run", "--name", "live", "train.py")

    def drawn() -> int:
        return uncolored(terminal.raw).count("live: Running")

    until(lambda: drawn() > 2, "the table to be drawn while the job runs")
    (ciao.storage / "jobs" / "live" / "work" / "go-on").touch()
    assert terminal.wait() == 0
    screen = terminal.screen()
    for replica in ("worker-0", "worker-1"):
        lines = [line for line in screen if line.startswith(f"[{replica}]")]
        assert lines == [f"[{replica}] step {i}" for i in range(12)]
    table = screen[screen.index("live: Succeeded") :]
    assert table[1].split() == ["replica", "state", "time", "lines/s", "last", "line"]
    assert [line.split()[:2] for line in table[2:4]] == [
        ["worker-0", "Succeeded"],
        ["worker-1", "Succeeded"],
    ]
    job = ciao.describe("live")
    assert table[4:] == [
        f"folder: {job['folder']}",
        f"logs:   {Path(job['replicas'][0]['log']).parent}",
        "",
    ]
    assert sum("live: " in line for line in screen) == 1
    assert re.search(r"\x1b\[38;5;\d+m\[worker-0\] \x1b\[0m", terminal.raw)
    assert terminal.raw.rindex("\x1b[?25h") > terminal.raw.rindex("\x1b[?25l")


def test_no_color_leaves_the_table_and_takes_the_colours(ciao: User) -> None:
    ciao.file("train.py", QUICK)
    terminal = ciao.terminal("run", "--name", "live", "train.py", NO_COLOR="1")
    assert terminal.wait() == 0
    colors = set(COLOR.findall(terminal.raw)) - {"\x1b[0m", "\x1b[1m"}
    assert not colors
    assert "live: Succeeded" in terminal.screen()
    plain = ciao.terminal("jobs", NO_COLOR="1")
    assert plain.wait() == 0
    assert "\x1b" not in plain.raw


def test_a_dumb_terminal_gets_no_escape_sequences(ciao: User) -> None:
    ciao.file("train.py", FAILS)
    terminal = ciao.terminal("run", "train.py", TERM="dumb")
    assert terminal.wait() == 1
    assert "\x1b" not in terminal.raw
    assert "ZeroDivisionError" in terminal.raw


def test_a_setting_colours_a_pipe(ciao: User) -> None:
    ciao.file("train.py", QUICK)
    assert "\x1b[" in ciao("run", "train.py", env={"CIAO_COLOR": "always"}).out


def test_a_narrow_window_keeps_long_lines_and_the_table_apart(ciao: User) -> None:
    long = "word " * 30
    loop = f"for i in range(4):\n    print(i, {long!r}, flush=True)\n    time.sleep(0.3)\n"
    ciao.file("train.py", f"{HEADER}import time\n{loop}")
    terminal = ciao.terminal("run", "--name", "live", "train.py", columns=40, rows=12)
    assert terminal.wait() == 0
    screen = terminal.screen()
    lines = [line for line in screen if line.startswith("[worker-1]")]
    assert lines == [f"[worker-1] {i} {long}".rstrip() for i in range(4)]
    table = screen[screen.index("live: Succeeded") :]
    assert table[1].split() == ["replica", "state", "last", "line"]
    assert all(len(line) <= 40 for line in table[:4])
    assert sum("live: " in line for line in screen) == 1


def test_a_table_higher_than_the_window_does_not_garble_the_lines(ciao: User) -> None:
    ciao.file("train.py", HEADER + "import time\nprint('hello', flush=True)\ntime.sleep(1)\n")
    terminal = ciao.terminal("run", "--name", "live", "--worker", "12", "train.py", rows=8)
    assert terminal.wait() == 0
    screen = terminal.screen()
    assert sum(line.endswith("] hello") for line in screen) == 12
    table = screen[screen.index("live: Succeeded") :]
    assert [line.split()[0] for line in table[2:14]] == [f"worker-{i}" for i in range(12)]


def test_a_flood_loses_no_line(ciao: User, figure: Callable[[str], None]) -> None:
    """10,000 lines a second for three seconds, from two replicas, against the log files."""
    ciao.file(
        "train.py",
        HEADER
        + "import sys, time\nstart = time.monotonic()\n"
        + "for t in range(60):\n"
        + "    numbers = range(t * 250, t * 250 + 250)\n"
        + "    sys.stdout.write(''.join(f'line {n} of the flood\\n' for n in numbers))\n"
        + "    sys.stdout.flush()\n"
        + "    time.sleep(max(0, start + t * 0.05 - time.monotonic()))\n",
    )
    terminal = ciao.terminal("run", "--name", "live", "train.py")
    assert terminal.wait() == 0
    job = ciao.describe("live")
    screen = terminal.screen()
    ended = max(Path(one["log"]).stat().st_mtime for one in job["replicas"])
    for one in job["replicas"]:
        prefix = f"[{one['name']}] "
        shown = [line.removeprefix(prefix) for line in screen if line.startswith(prefix)]
        assert len(shown) == 15_000
        assert shown == Path(one["log"]).read_text().splitlines()
    figure(
        f"{ended - job['created']:.1f} s of writing, of which 3 s are the program's own; its end "
        f"is known {job['replicas'][0]['since'] - ended:.1f} s later"
    )


def test_ctrl_c_stops_the_job_and_gives_the_cursor_back(ciao: User) -> None:
    ciao.file("train.py", LONG)
    terminal = ciao.terminal("run", "--name", "live", "train.py")
    until(lambda: "ready" in terminal.raw, "the first line")
    terminal.press("\x03")
    assert terminal.wait() == 130
    assert "live is stopped; its files stay in" in terminal.raw
    assert terminal.raw.rindex("\x1b[?25h") > terminal.raw.rindex("\x1b[?25l")
    ciao.nothing_left()


def test_a_second_ctrl_c_gives_the_cursor_back_too(ciao: User) -> None:
    ignore = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    ciao.file("train.py", LONG.replace("import time\n", f"import time\n{ignore}"))
    terminal = ciao.terminal("run", "--name", "live", "train.py", CIAO_STOP_GRACE="2")
    until(lambda: "ready" in terminal.raw, "the first line")
    terminal.press("\x03")
    terminal.press("\x03")
    assert terminal.wait() == 130
    assert terminal.raw.rindex("\x1b[?25h") > terminal.raw.rindex("\x1b[?25l")
    ciao.nothing_left()


def test_a_closed_terminal_ends_the_job(ciao: User) -> None:
    ciao.file("train.py", LONG)
    terminal = ciao.terminal("run", "train.py")
    until(lambda: "ready" in terminal.raw, "the first line")
    terminal.hang_up()
    ciao.nothing_left()


def test_errors_are_coloured_and_commands_are_spelt_as_they_are_typed(ciao: User) -> None:
    ciao.file("train.py", FAILS)
    terminal = ciao.terminal("run", "train.py")
    assert terminal.wait() == 1
    assert "\x1b[31m\x1b[1mJobFailed\x1b[0m" in terminal.raw
    ciao.file("train.py", QUICK)
    terminal = ciao.terminal("run", "-d", "--name", "far", "train.py")
    assert terminal.wait() == 0
    assert terminal.screen()[0].startswith(
        "far runs in the background. `ciao attach far` follows it"
    )


def test_an_installation_is_one_line_that_is_written_again(ciao: User) -> None:
    ciao.file("train.py", HEADER + "import app\n")
    with serving() as index:
        index.add("app", "1.0")
        index.stall.clear()
        options = ("--packages", "app", "--pip-index", index.url)
        terminal = ciao.terminal("run", *options, "train.py", PIP_CONFIG_FILE="/dev/null")
        until(lambda: terminal.raw.count("\r\x1b[2Kinstalling app: ") > 1, "the line, twice")
        index.stall.set()
        assert terminal.wait() == 0, terminal.raw
    lines = [line for line in terminal.screen() if line.startswith("installing app")]
    assert lines == ["installing app …"]  # nothing was measured that could stay
    assert "[pip]" not in terminal.raw
