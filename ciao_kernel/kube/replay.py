"""Filter one answer of the log endpoint for lines that were not delivered before. Does no I/O.

A connection can end at any byte, and a request can only ask for "all since this whole second".
So the next answer begins with delivered lines, and exactly these must be skipped:

- The server sends its file in order, without the lines stamped before ``sinceTime``. So the
  delivered lines from that second on come first in the next answer, in any order of their stamps.
  The same number of lines is skipped, and the last of them must be the last delivered line.
- If it is not, the file was rotated, or the node's clock was changed. The next answer is searched
  for that line (:data:`Mode.SEARCH`).
- If the line is not found, lines may be lost: this is reported, and all lines count as new
  (:data:`Mode.RESTART`).
"""

from __future__ import annotations

import enum
from dataclasses import replace

from ciao_kernel.kube import timestamps
from ciao_kernel.kube.resume_position import Gap, Lines, ResumePosition
from ciao_kernel.kube.timestamps import HEAD, STAMP

LONGEST = 1 << 20
"""Bytes of a piece: longer lines are delivered in pieces."""

_HELD = 1 << 20
# Maximum number of bytes that are held back.


class Mode(enum.Enum):
    """Method to find the first new line in an answer."""

    COUNT = enum.auto()
    SEARCH = enum.auto()
    RESTART = enum.auto()


class Mismatch(Exception):
    """The last delivered line is not at its expected position."""


class Replay:
    """One answer, processed as its bytes come.

    Args:
        progress: The resume position; updated with each delivered line.
        mode: Method to find the first new line.
        since: Stamp of the oldest line to deliver, or "".

    Attributes:
        begun: A line has come, new or not.
        joined: The first new line was found; all following lines are new.
        partial_match: Only some of several equal last lines came; the next search expects
            this number.
        words: Text that is not a log line: the kubelet's own text, sent with status 200.
        broken: This text came in place of a line; the rest of the answer is ignored.
    """

    def __init__(self, progress: ResumePosition, mode: Mode = Mode.COUNT, since: str = "") -> None:
        self.progress = progress
        self._since = timestamps.full(since) if since else b""
        self.begun = False
        self._rest = b""
        self._held: list[bytes] = []
        self._seconds: dict[bytes, int] = {}
        self._seen = 0
        self.joined = not progress.last or mode is Mode.RESTART
        self._lost = mode is Mode.RESTART
        self._search = mode is Mode.SEARCH
        self._bytes_to_skip = progress.sent
        oldest = progress.since.encode()[:19]
        self._left = sum(n for second, n in progress.seconds.items() if second >= oldest)
        # No delivered line has a later stamp, so a line with one means that the file was rotated.
        # The first such line tells: the program may write the next one an hour later.
        self._limit = max(progress.last, progress.high)[: STAMP - 1] + b"\xff"
        self.partial_match = False
        self.words = b""
        self.broken = False

    # --------------------------------------------------------------------------- the answer

    def feed(self, data: bytes) -> list[Lines | Gap]:
        """Process bytes of the answer and return the new lines.

        Raises:
            Mismatch: The answer does not continue the delivered lines.
        """
        *lines, self._rest = (self._rest + data).split(b"\n")
        found = self._take(lines)
        if len(self._rest) > LONGEST + STAMP and not self.broken:
            found += self._pieces()
        return found

    def end(self) -> list[Lines | Gap]:
        """Process the end of the answer and return the new lines, without an unfinished line.

        Raises:
            Mismatch: The last delivered line did not come.
        """
        found = self.release()
        if self._rest and not timestamps.stamped(self._rest) and not self.broken:
            self.words = self._rest[:HEAD]
        if self.words or self.joined:
            self.broken = bool(self.words)
            return found
        self.partial_match = self._search and self._seen > 0
        if self.partial_match:
            self.progress.run = self._seen
        raise Mismatch

    def finish(self) -> list[Lines | Gap]:
        """Return the unfinished line; for the last answer of a log."""
        rest, self._rest = self._rest, b""
        if rest and self.joined and not self.broken:
            return self._take([rest])
        if self._lost:
            self._lost = False
            return [Gap(_rotated(self.progress.last, b""))]
        return []

    @property
    def unfinished(self) -> bytes:
        """Return what has come of the last line without an end, and was not delivered."""
        return self._rest[STAMP + self._bytes_to_skip :]

    @property
    def holding(self) -> bool:
        """Return whether lines are held back because they may be old; see :meth:`release`."""
        return bool(self._held)

    def release(self) -> list[Lines | Gap]:
        """Deliver the lines that were held back: there was no sign that they are old."""
        if not self._held:
            return []
        held, self._held = self._held, []
        self.progress.high = b""
        return self._deliver(held)

    # ---------------------------------------------------------------------------- the lines

    def _take(self, lines: list[bytes]) -> list[Lines | Gap]:
        lines = self._stamped(lines)
        found: list[Lines | Gap] = []
        if lines and not self.broken:
            self.words = b""
        if lines and not self.begun:
            self.begun = True
            found += self._begin(lines[0])
        if lines and not self.joined:
            lines = self._search_last(lines) if self._search else self._skip(lines)
        if lines and self._bytes_to_skip:
            lines[0] = self._unsent(lines[0])
            self._bytes_to_skip = 0
        return found + self._in_order(lines) if lines else found

    def _stamped(self, lines: list[bytes]) -> list[bytes]:
        """Remove text that is not a log line, and convert stamps of other time zones to UTC."""
        if {line[29:STAMP] for line in lines} == {b"Z "}:
            return lines
        good: list[bytes] = []
        for line in lines:
            if found := timestamps.normal(line):
                good.append(found)
                continue
            # Near sinceTime, this may be the end of a long line whose beginning is older.
            self.words = line[:HEAD]
            if self.joined and (good or self.begun or not (self.progress.last or self._since)):
                self.broken = True
                break
        return good

    def _begin(self, first: bytes) -> list[Lines | Gap]:
        progress = self.progress
        found: list[Lines | Gap] = []
        if self._lost:
            found.append(Gap(_rotated(progress.last, first)))
            progress.before = replace(progress, before=None)
            progress.first, progress.last, progress.high, progress.line_hashes = b"", b"", b"", {}
            progress.open, progress.sent = b"", 0
            self._lost, self._bytes_to_skip = False, 0
        progress.first = progress.first or first[:HEAD]
        if self.joined:
            progress.seconds = self._seconds
        return found

    def _skip(self, lines: list[bytes]) -> list[bytes]:
        """Skip as many lines as were delivered."""
        old, new = lines[: self._left], lines[self._left :]
        self._left -= len(old)
        if max(old, default=b"") > self._limit or (new and not old):
            raise Mismatch
        if not self._left:
            if old[-1][:HEAD] != self.progress.last:
                raise Mismatch
            self._join(old)
            return new
        self._count(old)
        return []

    def _search_last(self, lines: list[bytes]) -> list[bytes]:
        """Skip all lines up to the last delivered one."""
        last = self.progress.last
        for number, line in enumerate(lines):
            if line[:HEAD] == last:
                self._seen += 1
                if self._seen == self.progress.run:
                    self._join(lines[: number + 1])
                    return lines[number + 1 :]
        self._count(lines)
        return []

    def _join(self, old: list[bytes]) -> None:
        self.joined = True
        self._count(old)
        # From now on, count the lines that the server has: after a rotation, it has fewer lines
        # than were delivered.
        self.progress.seconds = self._seconds

    def _count(self, lines: list[bytes]) -> None:
        if min(lines)[:19] == max(lines)[:19]:
            second = lines[0][:19]
            self._seconds[second] = self._seconds.get(second, 0) + len(lines)
            return
        for line in lines:
            self._seconds[line[:19]] = self._seconds.get(line[:19], 0) + 1

    # ---------------------------------------------------------------- stamps that step back

    def _in_order(self, lines: list[bytes]) -> list[Lines | Gap]:
        """Deliver lines, but hold back those whose stamps step back.

        If a kubelet's reader is more than one rotation behind, it skips a file, and then reads the
        newest one twice: these lines were delivered. Otherwise the node's clock was changed.
        """
        if self._held:
            return self._judge(lines)
        back = timestamps.step_back(lines, self.progress.high)
        if back is None:
            return self._deliver(lines)
        found = self._deliver(lines[:back]) if back else []
        return found + self._judge(lines[back:])

    def _judge(self, lines: list[bytes]) -> list[Lines | Gap]:
        self._held += lines
        hashes = self.progress.line_hashes
        if any(hash(line[:HEAD]) in hashes for line in lines):
            held, self._held = self._held, []
            self.joined, self._search, self._seen, self._seconds = False, True, 0, {}
            lost = f"Lines before {timestamps.clock(held[0])} UTC are lost"
            return [Gap(f"{lost}: they came faster than they were read."), *self._take(held)]
        if max(self._held) > self.progress.high or sum(map(len, self._held)) > _HELD:
            return self.release()
        return []

    # ----------------------------------------------------------------------------- delivery

    def _deliver(self, lines: list[bytes]) -> list[Lines | Gap]:
        self._count(lines)
        self.progress.note(lines)
        newest = lines[-1][: STAMP - 1].decode()
        if self._since:
            lines = [line for line in lines if line >= self._since]
        texts = [line[STAMP:] for line in lines]
        if max(map(len, texts), default=0) > LONGEST:
            texts = [piece for text in texts for piece in _cut(text)]
        if not texts:
            return []
        texts.append(b"")
        return [Lines(b"\n".join(texts), len(texts) - 1, newest)]

    def _pieces(self) -> list[Lines | Gap]:
        """Deliver the beginning of a long line, without waiting for its end."""
        progress, found, rest = self.progress, self.release(), timestamps.normal(self._rest)
        if not self.joined or not rest or rest < self._since:
            self._rest = self._rest[:HEAD]  # do not deliver it; the head identifies the line
            return found
        if not self.begun:
            self.begun, self.words = True, b""
            found += self._begin(rest)
        if self._bytes_to_skip:
            rest = self._unsent(rest)
        progress.open = progress.open or rest[:HEAD]
        *pieces, last = _cut(rest[STAMP:])
        self._rest = rest[:STAMP] + last
        progress.sent += sum(map(len, pieces))
        newest = rest[: STAMP - 1].decode()
        return found + [Lines(piece + b"\n", 1, newest) for piece in pieces]

    def _unsent(self, line: bytes) -> bytes:
        """Remove the delivered part of a long line."""
        progress = self.progress
        if self._bytes_to_skip == progress.sent and line[:HEAD] != progress.open:
            self._bytes_to_skip, progress.open, progress.sent = 0, b"", 0
            return line
        gone = min(self._bytes_to_skip, len(line) - STAMP)
        self._bytes_to_skip -= gone
        return line[:STAMP] + line[STAMP + gone :]


def _cut(text: bytes) -> list[bytes]:
    return [text[at : at + LONGEST] for at in range(0, max(1, len(text)), LONGEST)]


def _rotated(last: bytes, first: bytes) -> str:
    lost = f"Lines after {timestamps.clock(last)} UTC may be lost"
    if first:
        lost += f", at most {timestamps.span(last, first)} of them"
    return f"{lost}: the node rotated its log file."
