"""Events that a backend reports while it follows a job."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from ciao_kernel.model.profile import Profile
from ciao_kernel.model.replica import Replica
from ciao_kernel.model.status import Status
from ciao_kernel.model.usage import UsageReport


@dataclass(frozen=True, slots=True)
class Output:
    """Output of one replica since the previous event of this type.

    ``data`` contains whole lines, each with its line feed; a last line without a line feed is
    delivered when the replica has ended. ``tail`` is the unfinished line after them, for a live
    view; it is not counted yet and is delivered again later.
    """

    replica: Replica
    data: bytes
    lines: int
    tail: bytes = b""


@dataclass(frozen=True, slots=True)
class Notice:
    """One sentence for the user that is not part of a log."""

    text: str
    step: str = ""
    """The step that begins with it: its progress replaces the sentence where an output can be
    updated."""


class Unit(StrEnum):
    """Unit of the amounts of a step."""

    BYTES = "bytes"
    PACKAGES = "packages"
    STEPS = "steps"


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of a long step, as far as it is known.

    :class:`ciao_kernel.plugins.Step` makes these events, a few per second, and none for a step of
    less than a second.
    """

    step: str
    """What is done, for the begin of a line: ``pushing to host/team/cells``. It also identifies the
    step: later events replace what is shown for it."""
    seconds: float
    """Seconds since the step's begin."""
    done: int = 0
    total: int = 0
    """The whole amount; 0 if it is unknown, and only the time is shown."""
    unit: Unit = Unit.BYTES
    detail: str = ""
    """What the step does at the moment."""
    over: bool = False
    """The step has ended: no other event of it follows."""
    failed: bool = False
    """The step was interrupted or has failed: nothing of it stays."""


@dataclass(frozen=True, slots=True)
class TensorBoard:
    """TensorBoard shows jobs (``%tensorboard``)."""

    jobs: tuple[str, ...]
    """Names of the jobs that it shows now."""
    address: str
    """Its address on the kernel's machine, ``http://127.0.0.1:6006/``."""
    page: str = ""
    """Its address for a page of the notebook's server; "" if none is known."""
    loads: bool = False
    """It has not read event files of these jobs: a page that is loaded now would stay empty.

    Another event follows when it has, or when the job is over and has written some.
    """


Event = Output | Status | Notice | Progress | Profile | TensorBoard | UsageReport
