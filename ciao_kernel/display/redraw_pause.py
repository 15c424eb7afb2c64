"""Pauses between two redraws of an output in a cell, which grow with time.

Each redraw is a message. Jupyter Server keeps all messages for a page that is away, and passes only
some 3,000 of them on when the page returns. The fewer there are, the longer a page may be away and
still get the end of its job.
"""

from __future__ import annotations


def busy_pause(watched: float) -> float:
    """Return the least seconds between two redraws of what a job writes.

    Args:
        watched: Seconds for which the running job has been shown. Its age says less: a job may wait
            for hours, and `ciao attach` shows an old one from then on.
    """
    if watched < 60:
        return 0.25
    if watched < 600:
        return 1.0
    # Who watches a long training waits no longer than that for its newest lines.
    return 2.0 if watched < 3600 else 5.0


def quiet_pause(age: float, *, changing: bool) -> float:
    """Return the least seconds between two redraws of a table whose job writes nothing.

    The elapsed time counts seconds at first. Later it is redrawn less often: every ten seconds, and
    every minute after an hour, when the text has no seconds.

    Args:
        age: Seconds since the job's submission.
        changing: Whether a rate is shown that must fall to zero.
    """
    if changing or age < 60:
        return max(1.0, busy_pause(age))
    return 10.0 if age < 3600 else 60.0
