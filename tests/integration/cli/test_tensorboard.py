"""`ciao tensorboard` in a terminal: a real TensorBoard until Ctrl-C."""

from __future__ import annotations

import signal

import pytest

from tests.helpers import tensorboard
from tests.helpers.event_writer import WRITER
from tests.integration.cli.command import User

pytestmark = tensorboard.needs_tensorboard

PROGRAM = (
    "#%framework=python\n#%worker=1\n#%tensorboard\n"
    + WRITER
    + '\nEvents(os.environ["CIAO_LOGDIR"]).scalar("loss", 0.5, 1)\n'
)


def test_it_shows_ended_jobs_until_an_interrupt(ciao: User) -> None:
    ciao.file("train.py", PROGRAM)
    # TensorBoard imports TensorFlow, if there is one.
    done = ciao.finish(ciao.start("run", "--name", "first", "train.py"), 200)
    assert done.code == 0, done.err
    assert "TensorBoard of first: http://127.0.0.1:" in done.err
    ciao.nothing_left()  # it ends with the command

    process = ciao.start("tensorboard", "first")
    assert process.stderr
    line = process.stderr.readline()
    assert line.startswith("TensorBoard of first: ")
    tensorboard.scalars(line.split()[-1], "first/worker-0", step=1)
    process.send_signal(signal.SIGINT)
    assert ciao.finish(process).code == 130
    ciao.nothing_left()
    assert not list((ciao.storage / "tensorboard").iterdir())


@pytest.mark.second("faults")
def test_a_detached_job_is_named_for_later(ciao: User) -> None:
    ciao.file("train.py", PROGRAM)
    done = ciao("run", "-d", "--name", "far", "train.py")
    assert done.code == 0, done.err
    assert "`ciao tensorboard far` shows its event files." in done.err
    assert not (ciao.storage / "tensorboard").exists()


def test_without_jobs_it_says_what_is_missing(ciao: User) -> None:
    done = ciao("tensorboard")
    assert done.code == 2
    assert "no job of yours has %tensorboard" in done.err
    assert ciao("tensorboard", "none").code == 1
