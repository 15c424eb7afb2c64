"""Trainings that write no line while they validate: nobody takes them for jobs that hang.

By hand, for an hour and with all frameworks side by side: ``CIAO_TEST_MINUTES=60 pytest -s
tests/integration/kernel/test_quiet_trainings.py``. It writes the counts of each minute.
"""

from __future__ import annotations

import importlib.util
import itertools
import os
import random
import re
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from tests.helpers import trainings
from tests.helpers.kernels import Kernel, Place, Request

MINUTES = float(os.environ.get("CIAO_TEST_MINUTES", "0"))
SEED = int(os.environ.get("CIAO_TEST_SEED", "0")) or random.randrange(1, 10**6)
SILENCE = 30
"""Seconds: the setting. Half of it before its end the replicas are asked where they stand."""
PAUSES = (17.0, 20.0)
"""Seconds without a line: they are asked, and go on before the setting's end."""
STEPS = 40 if MINUTES else 4
LONGEST = 3600.0
"""Seconds of a job, on a busy machine."""
ASKED = re.compile(r": ([a-z]+)(?:-\d+)? is silent: its replicas are asked")
NOTICE = re.compile(r"no line for \d+|has not written a line")
HANGS = (
    "%framework=python\n%worker=1\nimport time\nprint('begins', flush=True)\ntime.sleep(10**6)\n"
)


@dataclass
class Training:
    """One framework's jobs in a kernel, one after another."""

    name: str
    kernel: Kernel
    chance: random.Random
    request: Request | None = None
    began: float = 0.0
    jobs: int = 0
    seconds: float = 0.0
    notices: list[str] = field(default_factory=list)
    """What the cells have shown that had one."""

    def go_on(self, *, again: bool) -> bool:
        """Take what the kernel says, and start the next job; return whether one runs."""
        if self.request is None and again:
            pause = self.chance.uniform(*PAUSES)
            self.request = self.kernel.execute(trainings.cell(self.name, STEPS, pause))
            self.began = time.monotonic()
        if self.request is None:
            return False
        self.kernel.take(0.02)
        seconds = time.monotonic() - self.began
        if not self.request.done:
            assert seconds < LONGEST, self.request.text[-2000:]
            return True
        assert self.request.status == "ok", self.request.text[-2000:]
        if NOTICE.search(self.request.text):
            self.notices.append(self.request.text)
        self.jobs, self.seconds = self.jobs + 1, self.seconds + seconds
        self.request = None
        self.kernel.requests.clear()
        return again


@pytest.mark.second("trials")
@pytest.mark.alone
@pytest.mark.frameworks
@pytest.mark.slow
@pytest.mark.timeout(60 * MINUTES + LONGEST)
def test_a_training_that_validates_is_not_taken_for_one_that_hangs(
    start_kernel: Callable[..., Kernel], place: Place, figure: Callable[[str], None]
) -> None:
    env = {"CIAO_SILENCE": str(SILENCE)}
    found = [name for name, (module, _) in trainings.CELLS.items() if _is_installed(module)]
    chances = (random.Random(SEED + number) for number in itertools.count())
    all_ = [Training(name, start_kernel(env=env), next(chances)) for name in found]
    last, hangs = all_[-1], None
    began = told = time.monotonic()
    while sum(one.go_on(again=_is_due(one, began)) for one in all_):
        if hangs:
            last.kernel.take(0.02)
        elif not last.request:  # its trainings are over, and others go on
            hangs = last.kernel.execute(HANGS)
        time.sleep(0.5)  # not busy: the trainings take what there is of this machine
        if time.monotonic() > told + 60:
            told = time.monotonic()
            print(time.strftime("%H:%M:%S"), _counts(all_, place), *_notices(all_), flush=True)
    figure(f"{(time.monotonic() - began) / 60:.0f} minutes, seed {SEED}: {_counts(all_, place)}")
    assert not _notices(all_)

    # A kernel whose trainings were not named names a job that does hang.
    hanging = hangs or last.kernel.execute(HANGS)
    last.kernel.wait(lambda: bool(NOTICE.search(hanging.text)), "the notice", LONGEST)
    assert "worker-0  line 5" in hanging.text
    last.kernel.interrupt()
    last.kernel.finish(hanging)


def _is_installed(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


def _is_due(one: Training, began: float) -> bool:
    return not one.jobs or time.monotonic() < began + 60 * MINUTES


def _notices(all_: list[Training]) -> list[str]:
    return [text[max(0, NOTICE.search(text).start() - 500) :][:1500]  # type: ignore[union-attr]
            for one in all_ for text in one.notices]  # fmt: skip


def _counts(all_: list[Training], place: Place) -> str:
    """The jobs of each framework, their time, and how often they were asked and told."""
    asked: Counter[str] = Counter()
    for file in sorted((place.storage / "log").glob("ciao.log*")):
        asked.update(ASKED.findall(file.read_text()))
    return "; ".join(
        f"{one.name}: {one.jobs} jobs in {one.seconds / 60:.0f} min, "
        f"asked {asked[one.name]} times, {len(one.notices)} notices"
        for one in all_
    )
