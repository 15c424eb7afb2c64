"""The colours of replicas: fixed for each, the same everywhere, readable in both themes."""

from __future__ import annotations

import pytest

from ciao_kernel.display.lines import Prefixer
from ciao_kernel.model import Replica
from ciao_kernel.model.replica_colors import color_of

ROLES = ("chief", "master", "ps", "worker", "evaluator", "scheduler")


def contrast(color: str, ground: str) -> float:
    def luminance(text: str) -> float:
        parts = [int(text[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        red, green, blue = (
            part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
        )
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    low, high = sorted((luminance(color), luminance(ground)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("ground", ["#ffffff", "#111111"])
def test_every_colour_is_readable(ground: str) -> None:
    for role in ROLES:
        for index in range(20):
            assert contrast(color_of(Replica(role, index)).html, ground) >= 4.0


def test_replicas_of_a_usual_job_differ() -> None:
    job = [Replica("chief", 0), Replica("ps", 0), Replica("ps", 1), Replica("evaluator", 0)]
    job += [Replica("worker", index) for index in range(8)]
    assert len({color_of(one).code for one in job}) == len(job)
    assert not any(color_of(one).repeated for one in job)


def test_a_second_replica_of_a_colour_is_marked() -> None:
    first, second = color_of(Replica("worker", 0)), color_of(Replica("worker", 8))
    assert first.html == second.html
    assert (first.repeated, second.repeated) == (False, True)


def test_other_roles_keep_their_colour_in_each_process() -> None:
    # A fixed number: Python's own hash of a text differs from one process to the next.
    assert color_of(Replica("scheduler", 0)).code == 31


def test_terminals_and_pages_show_the_same_colour() -> None:
    color = color_of(Replica("worker", 0))
    assert (color.sgr, color.html) == ("38;5;31", "#0087af")
    prefix = Prefixer(color=True, limit=10).prefix(Replica("worker", 0))
    assert prefix == "\x1b[38;5;31m[worker-0] \x1b[0m"
