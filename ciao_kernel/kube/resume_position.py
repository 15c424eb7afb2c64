"""Output of a log's reader, and its resume position: a record of the delivered lines."""

from __future__ import annotations

from dataclasses import dataclass, field

from ciao_kernel.kube import timestamps
from ciao_kernel.kube.timestamps import HEAD, STAMP

_MAX_HASHES = 1024


@dataclass(frozen=True, slots=True)
class Lines:
    r"""Whole lines without their stamps.

    Args:
        data: The lines, each with ``\n``; it is added to a last line without it.
        count: Number of lines.
        newest: Stamp of the last line, in RFC 3339.
    """

    data: bytes
    count: int
    newest: str


@dataclass(frozen=True, slots=True)
class Gap:
    """A message for the user about missing lines."""

    text: str


@dataclass(slots=True)
class ResumePosition:
    """Resume position in the log of one instance of a container.

    Args:
        first: Head of the first line, which is unique to this instance.
        last: Head of the last delivered line.
        run: Number of consecutive lines equal to ``last``, stamp included, that end with it.
        high: Highest stamp; after a change of the clock, it starts again from the new time.
        seconds: Number of lines that the server has for each second, up to ``last``.
        open: Head of a line longer than :data:`LONGEST` whose end has not come yet.
        sent: Number of delivered bytes of that line's text.
        line_hashes: Hashes of some delivered lines, to detect a file that is read twice.
        before: Position before an answer that was accepted as new without proof.
    """

    first: bytes = b""
    last: bytes = b""
    run: int = 0
    high: bytes = b""
    seconds: dict[bytes, int] = field(default_factory=dict)
    open: bytes = b""
    sent: int = 0
    line_hashes: dict[int, None] = field(default_factory=dict)
    before: ResumePosition | None = None

    @property
    def since(self) -> str:
        """Return the ``sinceTime`` with which the server repeats the last line; "" for all."""
        return timestamps.second_before(self.last) if self.last else ""

    def note(self, lines: list[bytes]) -> None:
        """Record whole lines as delivered."""
        head, run = lines[-1][:HEAD], 1
        if self.open and len(lines) == 1:  # the end of a long line: use the head of the line
            head = self.open
        while run < len(lines) and lines[-run - 1][:HEAD] == head:
            run += 1
        if run == len(lines) and head == self.last:
            run += self.run
        self.last, self.run, self.open, self.sent = head, run, b"", 0
        self.high = max(self.high, max(lines)[: STAMP - 1])
        for line in (lines[0], lines[-1]):
            self.line_hashes[hash(line[:HEAD])] = None
        while len(self.line_hashes) > _MAX_HASHES:
            del self.line_hashes[next(iter(self.line_hashes))]
        if len(self.seconds) > 8:
            oldest = self.since.encode()[:19]
            for second in [one for one in self.seconds if one < oldest]:
                del self.seconds[second]
