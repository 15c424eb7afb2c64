"""Curves of a job on the cluster: its header holds the wish, so that who attaches sees them."""

from __future__ import annotations

from typing import Any

from ciao_kernel.display.notebook import NotebookDisplay
from ciao_kernel.session.session import Session
from tests.e2e.jobs.conftest import Team

CELL = """\
%framework=tensorflow
%worker=2
%successPolicy=allWorkers
%plot=loss,losss
for step in range(50):
    print(f"step {step} loss {1 / (step + 1)}")
"""
"""Both workers decide: else the operator ends worker-1 with worker-0, however late it began."""


class Cell:
    """What a cell got (:class:`ciao_kernel.display.publisher.Publisher`)."""

    def __init__(self) -> None:
        self.text = ""
        self.shown: dict[str, dict[str, str]] = {}

    def stream(self, text: str) -> None:
        self.text += text

    def display(self, data: dict[str, str], display_id: str, **_: Any) -> None:
        self.shown[display_id] = data


def test_who_attaches_sees_the_curves_of_each_replica(team: Team) -> None:
    ended = team.run(CELL)
    assert ended.error is None, ended.error
    assert ended.result
    name, cell = ended.result.name, Cell()

    async def attach(session: Session) -> None:
        await session.attach(name, NotebookDisplay(cell, session.settings))

    team._ask(attach)
    (picture,) = (data for key, data in cell.shown.items() if key.endswith("-plot"))
    assert "image/png" in picture
    lines = picture["text/plain"].splitlines()
    assert [line.split()[:2] for line in lines] == [["loss", "worker-0"], ["loss", "worker-1"]]
    assert all(line.endswith("0.02 at step 49") for line in lines)
    assert "no line with `losss` was found; names found: loss." in cell.text
