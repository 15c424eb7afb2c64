"""The log: what a record looks like, what it never holds, and the file of several processes."""

from __future__ import annotations

import io
import logging
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ciao_kernel import log

LOGGER = logging.getLogger("ciao_kernel.some.module")
LINE = re.compile(
    r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z (DEBUG|INFO|WARNING|ERROR) \d+ ciao_kernel[\w.]*: "
)


@pytest.fixture(autouse=True)
def started() -> Iterator[None]:
    log.end()
    log.start()
    yield
    log.end()


def test_a_record_has_time_level_process_and_module() -> None:
    LOGGER.debug("GET %s: %d", "/version", 200)
    (text,) = log.recent()
    assert LINE.match(text)
    assert text.endswith(f" DEBUG {os.getpid()} ciao_kernel.some.module: GET /version: 200")


def test_start_twice_records_once() -> None:
    log.start()
    LOGGER.info("once")
    assert len(log.recent()) == 1


def test_the_users_own_logging_gets_nothing() -> None:
    heard = io.StringIO()
    handler = logging.StreamHandler(heard)
    logging.getLogger().addHandler(handler)
    try:
        LOGGER.error("a fault")
    finally:
        logging.getLogger().removeHandler(handler)
    assert heard.getvalue() == ""


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("https://ada:hunter2@host/simple", "hunter2"),
        ("Authorization: Bearer hunter2.hunter2-hunter2", "hunter2"),
        ("{'Authorization': 'Basic aHVudGVyMg=='}", "aHVudGVyMg"),
        ("HF_TOKEN=hunter2 python train.py", "hunter2"),
        ('{"refresh_token": "hunter2", "scope": "pull"}', "hunter2"),
        ("https://host/v2/?access_token=hunter2&n=1", "hunter2"),
    ],
)
def test_secrets_are_removed_from_messages_and_tracebacks(text: str, secret: str) -> None:
    LOGGER.info("asked %s", text)
    try:
        raise ValueError(text)
    except ValueError:
        LOGGER.exception("it failed")
    said = "\n".join(log.recent())
    assert secret not in said
    assert "ValueError" in said


def test_a_record_cannot_imitate_another_or_command_a_terminal() -> None:
    LOGGER.info("a name\x1b[2J\x07‮.txt")
    assert log.recent()[0].endswith(r"a name\x1b[2J\x07\u202e.txt")


KEEPS = """
import logging, weakref
from ciao_kernel import log
class Large:
    pass
def fails():
    large = Large()
    try:
        raise ValueError("no")
    except ValueError:
        logging.getLogger("ciao_kernel.a").exception("it failed")
    return weakref.ref(large)
log.start()
assert fails()() is None
assert "ValueError: no" in log.recent()[0]
"""


def test_a_record_keeps_no_variable_of_a_traceback() -> None:
    # In a process of its own: pytest keeps the records of its tests.
    subprocess.run([sys.executable, "-c", KEEPS], check=True, timeout=60)


def test_memory_is_bounded() -> None:
    for number in range(5000):
        LOGGER.debug("%s %d", "x" * 30_000 if number == 4999 else "", number)
    assert len(log.recent()) == 2000
    assert len(log.recent()[-1]) < 21_000
    assert log.recent()[0].endswith(" 3000")


def test_the_file_is_the_users_alone(tmp_path: Path) -> None:
    log.write_to(tmp_path / "storage")
    older, current = log.files(tmp_path / "storage")
    assert not current.parent.exists()  # nothing to write yet
    LOGGER.warning("a fault")
    assert current.parent.stat().st_mode & 0o777 == 0o700
    assert current.stat().st_mode & 0o777 == 0o600
    assert current.read_text() == f"{log.recent()[0]}\n"
    assert not older.exists()


def test_a_folder_without_the_right_to_write_disturbs_nobody(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "log").write_text("a file where the folder would be")
    log.write_to(tmp_path)
    LOGGER.warning("a fault")
    assert len(log.recent()) == 1
    assert capsys.readouterr() == ("", "")


PROGRAM = """
import logging, sys
from pathlib import Path
from ciao_kernel import log
log.write_to(Path(sys.argv[1]), largest=40_000)
for number in range(1500):
    logging.getLogger("ciao_kernel.a").info("%s %d %s", sys.argv[2], number, "x" * 50)
"""


def test_processes_share_the_file_and_rename_it_once(tmp_path: Path) -> None:
    running = [
        subprocess.Popen([sys.executable, "-c", PROGRAM, str(tmp_path), name]) for name in "abc"
    ]
    assert [one.wait(60) for one in running] == [0, 0, 0]
    older, current = log.files(tmp_path)
    if not current.exists():  # the last record of all was the one that filled the file
        current.touch()
    lines = (older.read_text() + current.read_text()).splitlines()
    assert all(LINE.match(line) and line.endswith("x" * 50) for line in lines)  # none is mixed
    assert older.stat().st_size > 35_000  # a file renamed twice in a row would be small
    assert current.stat().st_size < 45_000
    assert {path.name for path in current.parent.iterdir()} == {"ciao.log", "ciao.log.1"}


def test_ignored_logs_what_it_suppresses() -> None:
    with log.ignored(LOGGER, "a step"):
        raise RuntimeError("why")
    with log.ignored(LOGGER, "a request", KeyError):
        raise KeyError("x")
    with pytest.raises(ValueError, match="no"), log.ignored(LOGGER, "a request", KeyError):
        raise ValueError("no")
    with pytest.raises(KeyboardInterrupt), log.ignored(LOGGER, "a step"):
        raise KeyboardInterrupt
    first, second = log.recent()
    assert " WARNING " in first
    assert "a step failed\nTraceback" in first
    assert "RuntimeError: why" in first
    assert " DEBUG " in second


def test_a_stream_gets_its_level_and_above() -> None:
    heard = io.StringIO()
    log.show_on(heard, logging.INFO)
    LOGGER.debug("not this")
    LOGGER.info("token=hunter2")
    (line,) = heard.getvalue().splitlines()
    assert line.endswith("token=…")
