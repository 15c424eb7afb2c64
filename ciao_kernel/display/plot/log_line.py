"""Finds the numbers in one line of a replica: ``step 20 loss 0.31``.

:func:`read` supports the usual forms: plain text, JSON, progress bars of Keras and tqdm.
:mod:`ciao_kernel.display.plot.metrics` turns the numbers into curves.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass, field

_FARTHEST = 1e15  # upper limit of a step

LOSSES = re.compile(r"(?:^|_)(?:loss|acc|accuracy)$")
"""Names that are a metric also in a line that may be prose: ``loss 0.31``."""

OF_OBJECTS = re.compile(
    r"(?:^|_)(?:shape|size|ndim|dims?|dtype|device|cuda|array|tensor|features|channels|stride|padding|"
    r"dilation|params?|parameters|dataloader|num_proc)$"
)
"""Names that describe an array, a layer or the loop of a bar: ``in_features=784``,
``device='cuda:0'``, ``Validation DataLoader 0:``, ``Map (num_proc=4):``.
"""

_SETS = {
    **dict.fromkeys(("train", "training"), "train_"),
    **dict.fromkeys(("val", "valid", "validation", "validating"), "val_"),
    **dict.fromkeys(("eval", "evaluation", "evaluating"), "eval_"),
    **dict.fromkeys(("test", "testing"), "test_"),
}
"""Words that name the data set of a number, and the prefix of metric names for it."""
_PREFIXES = tuple(sorted(set(_SETS.values())))

OF_PROSE = re.compile(
    rf"(?:{'|'.join(_PREFIXES)})?(?:after|at|by|for|from|in|into|of|on|than|to|until|using|with)"
)
"""Words of a sentence that may have a number behind them: ``improved from 0.5 to 0.4``."""

_OF_NO_DATA = frozenset(("lr", "learning_rate", "time", "eta", "elapsed"))
"""Names whose meaning does not depend on the data set of the line."""
_STEPS = ("global_step", "step", "iteration", "iter", "batch", "num_updates", "update")
"""Names of step counters, the best first."""
_COUNTED = "steps"
"""A step counter only at the begin of a line with a loss, as DeepSpeed writes it: ``steps: 10 loss:
2.3``. Elsewhere it is a value, such as the length of an episode, or the number of all steps.
"""
_NOT_NOW = ("best_", "total_", "max_", "num_", "start_")
"""Prefixes of two-word names that are not the current epoch: ``best epoch 1``."""
_OF_MANY = ("over_", "per_")
"""Same, if a mark follows: ``accuracy over epoch: 0.79``."""
_NOT_CURRENT = re.compile(
    r"\W*(?:best|lowest|highest|min(?:imum)?|max(?:imum)?|avg|average|mean|target|goal|"
    r"prev(?:ious)?|initial)\W*",
    re.I,
)
"""Words before a metric whose value is not that of the step: ``loss 0.25 best loss 0.05``."""
_BARE = 2
"""Rank of a value whose name has no word before it."""

# A name behind a backtick is code: set `TF_ENABLE_ONEDNN_OPTS=0`.
# All quantifiers that could overlap are possessive: a line may contain anything.
_WHOLE = r"(?:[1-9]\d{0,2}(?>(?:,\d{3})+)(?![\d,])|\d++)"
"""Digits, or groups of three as in 1,000."""
_NUMBER = rf"(?a:[-+]?(?:(?:{_WHOLE}\.?\d*+|\.\d++)(?:e[-+]?\d++)?|nan|inf(?:inity)?))"
"""Only what :func:`float` takes: with all of Unicode, the Turkish İ would be an i."""
_AT = rf"[ \t]++(?:\([^()]{{0,40}}+\)[ \t]++)?at[ \t]++step[ \t]++(?P<at>{_WHOLE})"
"""Text that may precede the mark: ``loss (for 1 batch) at step 0: 131.3``."""
# A percent with a bar behind it is tqdm's, and not the value of its description: "Epoch:  20%|██".
_PAIR = re.compile(
    rf"""
      (?<![\w./@`]) (?P<name>[a-z][\w./@-]{{0,63}}+) ["']?+
      (?: (?:{_AT})? [ \t]*+ (?P<mark>[:=]>?|->|→|(?<=[ \t])is(?=[ \t])) [ \t]*+
        | (?=[ \t\[(]) [ \t]*+ )
      (?P<open>["'\[(]*+) (?:(?:[a-z][a-z\d]*+\.)?[a-z]++\d*+\(\[?)? [ \t]*+
      (?P<number>{_NUMBER}) (?:(?<=[a-z])\.0)? (?: [ \t]*+/[ \t]*+(?P<total>{_WHOLE}) )?
      (?! \w | \.\d | [:-]\d | /\d | %\| )
    | (?<![\w./@-]) (?P<set>{"|".join(sorted(_SETS, key=len, reverse=True))}) (?:_\d++)?
      (?![\w/@-]|\.\w)
    | (?P<quote>["']) (?P<group>[a-z][\w./@-]{{0,63}}+) (?P=quote) [ \t]*+ : [ \t]*+ \{{
    | (?P<close>\}})
    """,
    re.X | re.I,
)
_DAY = r"\d\d?/\d\d?,?[ \t]\d\d:\d\d"
"""A date, as in ``01/15 12:00``. A time after a progress bar begins with a single digit."""
_PROGRESS = re.compile(
    rf"""
      (?<![\w./]) (?<!\d,) (?!{_DAY}) (?P<done>{_WHOLE})
      (?: [ \t]*+/[ \t]*+ (?:(?P<total>{_WHOLE})(?![\w./])|Unknown|\?) | it[ \t]\[ )
    """,
    re.X,
)
_INNER = re.compile(
    rf"[ \t]*+\][ \t]?\[[ \t]*+(?P<done>{_WHOLE})[ \t]*+/[ \t]*+(?P<total>{_WHOLE})[ \t]*+\]"
)
"""A counter in brackets behind another one: ``[0/5][50/1583]`` is epoch and step."""
_ROUND = re.compile(r"(?:^|\] )\[(\d{1,15})\]\t")
"""A round of XGBoost or LightGBM. torchrun's number of a process has a space behind it."""
_BEST_ROUND = ("est iteration is:", "est iteration:")
"""Ends of lines before one that repeats the best round, where LightGBM or XGBoost stops early."""
_INDEX = re.compile(
    r"""
      (?>(?: ,[ \t]*+\d++ )*) [ \t]*+ ["']? [\])]
      (?: [ \t]*+ (?:[:=]|->|→) | [ \t]++ [-+]?\d*+\.\d )
    """,
    re.X,
)
"""Text after a number that is part of a name: ``[0]:``, ``[0, 1] =``, ``[0] 0.31``."""
_DECIMALS = re.compile(r",\d")
_COMMA = re.compile(r"[ \t]*+,")
_SHAPE = re.compile(r"[ \t]*+,[ \t]*+(?>(?:(?:\d++|None)[ \t]*+,?+[ \t]*+)*)[\])]")
"""Text after the first number of a shape: ``(3, 4)``, ``torch.Size([32, 3])``, ``(64,)``."""
_SOURCE_FILE = re.compile(r"\.(?:pyx?|cc?|cpp|cxx|cuh?|hpp|hh?|go|rs)", re.I)
"""Ends of names of source files; log lines have the number of a line behind them."""
_LIBRARY = re.compile(r"[IWEF]0000 00:00:[\d:. \t]++[\w/.-]{1,200}?\.cc:\d++\]")
"""The begin of a log line of a library in C++ that has set up no log, such as TensorFlow's: its
numbers are no metrics. Programs that set up a log write the date."""
_NO_WORD = re.compile(r"\W+")


@functools.lru_cache(1000)
def normalize_name(name: str) -> str:
    """Return a metric's name in the form in which names are compared.

    ``Validation/Loss`` becomes val_loss, and so does ``Loss/val``.
    """
    plain = _NO_WORD.sub("_", name).strip("_").lower()
    first, line, rest = plain.partition("_")
    if line and first in _SETS:
        return _SETS[first] + rest
    start, line, last = plain.rpartition("_")
    return _SETS[last] + start if line and last in _SETS else plain


@dataclass(slots=True)
class Reading:
    """Content of one line."""

    values: dict[str, float] = field(default_factory=dict)
    """Values by folded name."""
    longer: dict[str, float] = field(default_factory=dict)
    """Values by names of two words, if a word precedes the name: ``learning rate: 1``."""
    of: str = ""
    """Data set of the line, such as ``val_``; "" is training, or several data sets."""
    step: float | None = None
    total: float | None = None
    """Total number of steps, if a progress bar shows it."""
    epoch: float | None = None
    epochs: float | None = None
    """Total number of epochs, if the line has it: ``Epoch 1/3``."""
    epochs_counted: bool = False
    """True if :attr:`epochs` is their number also where they count from 0."""
    opens_epoch: bool = False
    """True if the line only opens an epoch: ``Epoch 1/3``."""
    precedes_summary: bool = False
    """True if the next line repeats the best round."""
    marked: bool = False
    """True if the numbers follow ``:`` or ``=``; otherwise the line may be prose."""


def read(line: str) -> Reading:
    """Read the numbers that follow names in a line; ignore everything else."""
    found = Reading()
    if _LIBRARY.match(line):
        return found
    of = stem = ""
    kinds: set[str] = set()
    ranks: dict[str, int] = {}
    steps: dict[str, tuple[float, float | None]] = {}
    counted: tuple[str, float, float | None] | None = None
    spans: list[tuple[int, int]] = []
    bar: tuple[float, float] | None = None
    for match in _PAIR.finditer(line):
        written = match["name"]
        if written is None:
            group = (match["set"] or match["group"] or "").lower()
            of, stem = _SETS.get(group, ""), "" if group in _SETS else normalize_name(group)
            continue
        name = normalize_name(written)
        value = _float(match["number"])
        total = _float(match["total"]) if match["total"] else None
        spans.append(match.span())
        if match["at"] and (at := _float(match["at"])) < _FARTHEST:
            steps.setdefault("step", (at, None))
        bare = name.removeprefix("train_")
        if bare == "epoch" or (bare == "epochs" and total):
            other = (*_NOT_NOW, *_OF_MANY) if match["mark"] else _NOT_NOW
            now = not _longer(line, match.start(), written).startswith(other)
            if found.epoch is None and now and abs(value) < _FARTHEST:
                found.epoch, found.epochs = value, total
                found.opens_epoch = total is not None
        elif bare in _STEPS:
            if abs(value) < _FARTHEST and (total or 0) < _FARTHEST:
                steps.setdefault(bare, (value, total))
        elif name in _SETS:
            if stem:
                found.values[_SETS[name] + stem] = value
                continue
            of = _SETS[name]
            if bar is None and total is not None and value <= total < _FARTHEST:
                bar = value, total
        elif name and not _is_not_value(line, match):
            found.marked |= match["mark"] is not None
            kind = _kind(name, of)
            if kind is not None:
                kinds.add(kind)
            key = name if kind is None or name.startswith(kind) else kind + name
            if bare == _COUNTED and (len(spans) == 1 or total) and _is_counter(line, match):
                counted = key, value, total
            if total:  # "Accuracy: 9900/10000" is a fraction.
                value /= total
            rank = _rank(line, match.start())
            if rank >= ranks.get(key, 0):
                found.values[key], ranks[key] = value, rank
            if long := _longer(line, match.start(), written):
                kind = _kind(long, of)
                found.longer[long if kind is None or long.startswith(kind) else kind + long] = value
    if len(kinds) == 1:
        (found.of,) = kinds - {"train_"} or {""}
    if steps:
        found.step, found.total = steps[min(steps, key=_STEPS.index)]
    elif counted and any(map(LOSSES.search, found.values)):
        key, found.step, found.total = counted
        del found.values[key]
    elif bar:
        found.step, found.total = bar
    else:
        _find_bar(line, spans, found)
        if found.step is None and "]\t" in line and (boosting := _ROUND.search(line)):
            found.step = float(boosting[1])
    found.precedes_summary = line.rstrip().endswith(_BEST_ROUND)
    found.opens_epoch &= not found.values and found.step is None
    return found


def _is_counter(line: str, match: re.Match[str]) -> bool:
    """Return whether ``steps`` may be the current step, unlike ``warmup steps: 100``."""
    marked = match["mark"] in (":", "=") or match["total"] is not None
    near = abs(_float(match["number"])) < _FARTHEST and _float(match["total"] or "0") < _FARTHEST
    return marked and near and not _longer(line, match.start(), match["name"])


def _is_not_value(line: str, match: re.Match[str]) -> bool:
    """Return whether a number is not a value.

    Such numbers are the 0 of ``loss[0]: 0.31`` and of ``loss: 0,31``, the 153 of
    ``port.cc:153]``, and the 3 of ``shape=(3, 4)``.
    """
    if match["total"]:
        return False
    whole = match["number"].lstrip("+-").isdigit()
    if whole and match["mark"] == ":" and match.end("mark") == match.start("number"):
        dot = max(match["name"].rfind("."), 0)
        if _SOURCE_FILE.fullmatch(match["name"], dot):
            return True
    if whole and _DECIMALS.match(line, match.end()):
        return True
    before = line[match.end("name") : match.start("number")]
    if whole and ("(" in before or "[" in before) and _SHAPE.match(line, match.end()):
        return True
    call = match["mark"] is None and match["open"] and match.start("open") == match.end("name")
    if whole and call and _COMMA.match(line, match.end()):  # Conv2d(1, 32, stride=2)
        return True
    # A value may be in brackets after a space: "best loss (0.31): saved".
    may_be = whole or match.start("open") == match.end("name")
    inside = match["mark"] is None and match["open"]
    return bool(may_be and inside and _INDEX.match(line, match.end()))


def _float(digits: str) -> float:
    return float(digits.replace(",", ""))


def _kind(name: str, of: str) -> str | None:
    """Return the data set of a number, by its name, else by the words before; None if none."""
    if name in _OF_NO_DATA:
        return None
    return next((prefix for prefix in _PREFIXES if name.startswith(prefix)), of)


def _longer(line: str, start: int, name: str) -> str:
    """Return the name with the word before it; "" if there is no such word."""
    word = _word_before(line, start)
    return "" if not word or word.lower() in _SETS else normalize_name(f"{word} {name}")


def _rank(line: str, start: int) -> int:
    """Return how sure it is that a value is the current one of its name in the line.

    A name of its own says so, also behind a word for a data set; another word before it says
    less, and ``best`` the contrary. Of equal ones the last counts.
    """
    word = _word_before(line, start)
    if word.lower() in _SETS:
        word = _word_before(line, line.rindex(word, 0, start))
    if not word:
        return _BARE
    return 0 if _NOT_CURRENT.fullmatch(word) else 1


def _word_before(line: str, start: int) -> str:
    """Return the word that only a space separates from what starts there; "" if there is none."""
    if start < 2 or line[start - 1] not in " \t" or not line[start - 2].isalpha():
        return ""
    return line[max(0, start - 65) : start].split()[-1]


def _find_bar(line: str, spans: list[tuple[int, int]], found: Reading) -> None:
    for bar in _PROGRESS.finditer(line):
        done, total = _float(bar["done"]), _float(bar["total"]) if bar["total"] else None
        inside = any(start <= bar.start() < end for start, end in spans)
        if not inside and done <= (done if total is None else total) < _FARTHEST:
            found.step, found.total = done, total
            _find_inner(line, bar, found)
            break


def _find_inner(line: str, bar: re.Match[str], found: Reading) -> None:
    """Take a counter in brackets for the epoch if one of steps follows it directly."""
    inner = _INNER.match(line, bar.end())
    if inner is None or not line[: bar.start()].rstrip().endswith("["):
        return
    step, total = _float(inner["done"]), _float(inner["total"])
    # Where the line names its epoch, a shorter one counts parts of a step: Epoch 3 [50/1000] [1/4].
    if step <= total < _FARTHEST and (found.epoch is None or total >= (found.total or 0)):
        if found.epoch is None:
            found.epoch, found.epochs, found.epochs_counted = found.step, found.total, True
        found.step, found.total = step, total
