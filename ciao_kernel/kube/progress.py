"""What a log's reader hands out, and what it remembers of the lines that it delivered."""

from __future__ import annotations

from dataclasses import dataclass, field

from ciao_kernel.kube import stamps
from ciao_kernel.kube.stamps import HEAD, STAMP

_MARKS = 1024


@dataclass(frozen=True, slots=True)
class Lines:
    r"""Whole lines without their stamps.

    Args:
        data: The lines, each with its ``\n``, which is added to a last line that has none.
        count: How many.
        newest: Stamp of the last one, in RFC 3339.
    """

    data: bytes
    count: int
    newest: str


@dataclass(frozen=True, slots=True)
class Gap:
    """Something that cannot be had, in words for the user."""

    text: str


@dataclass(slots=True)
class Progress:
    """What was delivered of one instance of a container.

    Args:
        first: Head of its first line, which no other instance has.
        last: Head of its last line.
        run: How many lines equal to that one, stamp included, end there in a row.
        high: Highest stamp; older ones than ``last`` only count since the clock was set.
        seconds: How many lines of each second the server has, up to ``last``.
        open: Head of a line longer than :data:`LONGEST` whose end is still to come.
        sent: How many bytes of that line's text were delivered.
        marks: Hashes of some delivered lines: these tell a file that is read again.
        before: What was known before an answer that was taken for new without proof.
    """

    first: bytes = b""
    last: bytes = b""
    run: int = 0
    high: bytes = b""
    seconds: dict[bytes, int] = field(default_factory=dict)
    open: bytes = b""
    sent: int = 0
    marks: dict[int, None] = field(default_factory=dict)
    before: Progress | None = None

    @property
    def since(self) -> str:
        """The ``sinceTime`` that makes the server send the last line again; "" for all."""
        return stamps.second_before(self.last) if self.last else ""

    def note(self, lines: list[bytes]) -> None:
        """Count whole lines as delivered."""
        head, run = lines[-1][:HEAD], 1
        if self.open and len(lines) == 1:  # the end of a long line: its head was another
            head = self.open
        while run < len(lines) and lines[-run - 1][:HEAD] == head:
            run += 1
        if run == len(lines) and head == self.last:
            run += self.run
        self.last, self.run, self.open, self.sent = head, run, b"", 0
        self.high = max(self.high, max(lines)[: STAMP - 1])
        for line in (lines[0], lines[-1]):
            self.marks[hash(line[:HEAD])] = None
        while len(self.marks) > _MARKS:
            del self.marks[next(iter(self.marks))]
        if len(self.seconds) > 8:
            oldest = self.since.encode()[:19]
            for second in [one for one in self.seconds if one < oldest]:
                del self.seconds[second]
