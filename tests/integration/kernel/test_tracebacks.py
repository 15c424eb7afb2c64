"""A failure shows its traceback once: in the error of its cell."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.helpers.colors import uncolored
from tests.helpers.kernels import Place

BODY = """\
%framework=python
%worker=1
%name=broken
import traceback
def train():
    raise ValueError('no luck')
try:
    train()
except ValueError:
    traceback.print_exc()
print('going on', flush=True)
train()
"""


def test_the_error_of_a_cell_repeats_no_line_of_its_output(kernel: Any, place: Place) -> None:
    done = kernel.run(BODY.replace("    raise", "    print('first')\n    raise", 1))
    assert done.error == "JobFailed"
    text = uncolored(done.text)
    lines = text.splitlines()
    error = "\n".join(done.of("error")[0]["traceback"])
    assert error.count("Traceback (most recent call last)") == 1
    assert "Cell, line 13, in <module>" in uncolored(error)
    # The program has survived its first traceback, and this one stays.
    assert text.count("[worker-0] Traceback (most recent call last)") == 1
    assert lines.index("[worker-0] ValueError: no luck") < lines.index("[worker-0] going on")
    assert lines[-1] == "[worker-0] … 6 lines of the traceback shown below …"
    # Nothing is lost: not in the file, and not for the command that shows it.
    (log,) = place.job_folders()[-1].glob("logs/worker-0.log")
    assert log.read_text().count("ValueError: no luck") == 2
    assert kernel.run("%ciao logs broken").text.count("ValueError: no luck") == 2
    again = kernel.run("%ciao attach broken")
    assert again.error == "JobFailed"
    assert uncolored(again.text).splitlines()[-1] == lines[-1]


@pytest.mark.second("packages")
@pytest.mark.frameworks
@pytest.mark.slow
def test_the_report_of_the_real_torchrun_is_one_line(kernel: Any, place: Place) -> None:
    pytest.importorskip("torch")
    done = kernel.run(
        "%framework=pytorch\n%name=torn\nimport os\nprint('go')\nos.kill(os.getpid(), 9)"
    )
    assert done.error == "JobFailed"
    lines = uncolored(done.text).splitlines()
    assert lines[-2] == "[master-0] go"
    end = "lines of torchrun's own report: rank 0 was killed by SIGKILL …"
    assert re.fullmatch(rf"\[master-0\] … \d+ {re.escape(end)}", lines[-1])
    error = "\n".join(done.of("error")[0]["traceback"])
    assert "master-0 was killed by SIGKILL (rank 0)." in error
    assert "====" not in error
    (log,) = place.job_folders()[-1].glob("logs/master-0.log")
    assert "ChildFailedError" in log.read_text()
