"""Curves from the whole logs of an existing job, for Python code instead of a picture."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ciao_kernel.display.plot.log_line import OF_OBJECTS, Reading, normalize_name, read
from ciao_kernel.display.plot.metrics import Metrics
from ciao_kernel.display.plot.series import Series
from ciao_kernel.model import Replica

_POINTS = 1_000_000
"""Maximum number of points of a curve: more than a picture needs, but not without limit."""
_NAMES = 200
_LAST_LINES = 4000
"""Lines at the end of a log whose names count; at the start Metrics has a limit of its own."""
_PIECE = 1 << 20
"""Bytes that are read at a time."""
_ENDS = (b"\n", b"\r", b"\b")
"""Ends of a line, or of a state of a bar that writes over itself."""
_END = re.compile(rb"[\n\r\x08]")
_RANK = rb"^(?P<rank>(?:\[\d{1,6}\] )?(?:\[rank\d{1,6}\]: )?)"
_TRACEBACK = re.compile(
    _RANK + rb"Traceback \(most recent call last\):\r?\n(?:(?P=rank)[ \t].*+\n)*",
    re.M,
)
"""The frames of a traceback: its lines of code have names and numbers, as in fit(epochs=3). Several
processes of a replica have their numbers before each line, and PyTorch its rank."""
_FRAMES = re.compile(
    _RANK + rb"[ \t]++File \"[^\"\n]++\", line \d++.*+\n(?:(?P=rank)[ \t].*+\n)*", re.M
)
"""The same where the first line of the traceback is not among the last ones of a log."""
_LOSS = re.compile("loss")
_KNOWN = re.compile(
    r"loss(?![a-z])|(?<![a-z])(?:acc(?:uracy)?|m?error|auc|f1|m[sa]e|rmse|mape|r2|perplexity|ppl|bleu|"
    r"rouge|precision|recall|m?iou|dice|map|psnr|fid|reward|return|score|entropy|elbo)(?![a-z])"
)
"""Names that always are a metric."""
_NO_METRIC = re.compile(
    r"(?<![a-z])(?:time|times|sec|secs|seconds|ms|s|eta|elapsed|lr|learning_rate|rate|seed|port|pid|rank|"
    r"size|n|in|of|samples|examples|tokens|rows|workers|memory|gb|mb|exitcode)(?![a-z])"
)
"""Words of names that are no metric, also in the line of a step."""


def read_all(data: bytes, *, over: bool = False) -> dict[str, Series]:
    """Return a curve for each number that a replica has logged, the most frequent name first.

    The names are those of the first and the last thousands of lines.

    Args:
        data: The whole output of one replica.
        over: Nothing more is written. Otherwise the last line may end in half a number, and only
            the states of a bar in it count that others have followed.
    """
    data = _TRACEBACK.sub(b"", data)
    one = Replica("", 0)
    first, last = Metrics(()), Metrics(())
    first.add(one, data[:_PIECE])
    if len(data) > _PIECE:
        last.add(one, b"\n".join(data[-_PIECE:].split(b"\n")[-_LAST_LINES:]))
    names = tuple(dict.fromkeys((*first.seen(_NAMES), *last.seen(_NAMES))))
    metrics = Metrics(names, points=_POINTS)
    for piece in _pieces(data, over=over):
        metrics.add(one, piece)
    return {name: curves[one] for name, curves in metrics.curves.items() if one in curves}


def _pieces(data: bytes, *, over: bool) -> Iterator[bytes]:
    """Yield lines and states of bars, many at a time; what has no end yet only if it is over."""
    start = 0
    while start < len(data):
        end = max(data.rfind(one, start, start + _PIECE) for one in _ENDS) + 1
        if not end:  # a longer line
            match = _END.search(data, start)
            if match is None:
                break
            end = match.end()
        yield data[start:end]
        start = end
    if over:
        yield data[start:]


def normalize(name: str) -> str:
    """Return the name of a metric in the form of :func:`read_all`."""
    return normalize_name(name)


def newest(data: bytes, wishes: tuple[str, ...] = ()) -> str:
    """Return the newest metric in the end of a log: ``loss 0.31``; "" if there is none.

    Args:
        data: The last lines of a log.
        wishes: Names of metrics that the user asked for.
    """
    wanted = tuple(map(normalize_name, wishes))
    _, _, whole = data.partition(b"\n") if data.count(b"\n") > 1 else (b"", b"", data)
    whole = _FRAMES.sub(b"", _TRACEBACK.sub(b"", whole))
    for line in reversed(re.split(r"[\r\n]+", whole.decode("utf-8", "replace"))):
        found = read(line)
        if names := [name for name in found.values if _is_metric(name, found, wanted)]:
            best = [
                *(name for name in wanted if name in names),
                *filter(_LOSS.search, names),
                *filter(_KNOWN.search, names),
                *names,
            ]
            return f"{best[0]} {found.values[best[0]]:.4g}"
    return ""


def _is_metric(name: str, found: Reading, wanted: tuple[str, ...]) -> bool:
    """Return whether a number measures the training; ports, seeds and times do not.

    A name that says nothing counts with a mark in the line of a step or an epoch:
    ``step 3: ndcg=0.7``.
    """
    placed = found.step is not None or found.epoch is not None
    if name in wanted or _KNOWN.search(name):
        return found.marked or placed
    known_others = _NO_METRIC.search(name) or OF_OBJECTS.search(name)
    return found.marked and placed and not known_others
