"""Numbers in one line that a replica writes: ``step 20 loss 0.31``.

:func:`read` knows the usual forms: plain text, JSON, Keras' and tqdm's progress bars.
:mod:`ciao_kernel.metrics` makes curves of what it finds.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_FARTHEST = 1e15  # steps that one may count

_SETS = {
    **dict.fromkeys(("train", "training"), "train_"),
    **dict.fromkeys(("val", "valid", "validation", "validating"), "val_"),
    **dict.fromkeys(("eval", "evaluation", "evaluating"), "eval_"),
    **dict.fromkeys(("test", "testing"), "test_"),
}
"""Words that tell of what data a number is, and how names that say so begin."""
_STEPS = ("global_step", "step", "iteration", "iter", "batch", "num_updates", "update")
"""Names of a count of steps, the best first."""
_EPOCHS = ("epoch", "epochs")

# All quantifiers that could meet are possessive: a line may hold anything.
_WHOLE = r"(?:[1-9]\d{0,2}(?>(?:,\d{3})+)(?![\d,])|\d++)"
"""Digits, or groups of three as in 1,000."""
_NUMBER = rf"[-+]?(?:(?:{_WHOLE}\.?\d*+|\.\d++)(?:e[-+]?\d++)?|nan|inf(?:inity)?)"
_PAIR = re.compile(
    rf"""
      (?<![\w./@]) (?P<name>[a-z][\w./@-]{{0,63}}+) ["']?+
      (?: [ \t]*+ (?P<mark>[:=]>?|->|→|(?<=[ \t])is(?=[ \t])) [ \t]*+ | (?=[ \t\[(]) [ \t]*+ )
      ["'\[(]*+ (?:(?:[a-z][a-z\d]*+\.)?[a-z]++\d*+\(\[?)? [ \t]*+
      (?P<number>{_NUMBER}) (?: [ \t]*+/[ \t]*+(?P<total>{_WHOLE}) )?
      (?! \w | \.\d | [:-]\d | /\d )
    | \b(?P<set>{"|".join(sorted(_SETS, key=len, reverse=True))})\b
    """,
    re.X | re.I,
)
_DAY = r"\d\d?/\d\d?,?[ \t]\d\d:\d\d"
"""A date, as in ``01/15 12:00``. A bar may have a time behind it too, with one digit first."""
_PROGRESS = re.compile(
    rf"""
      (?<![\w./]) (?<!\d,) (?!{_DAY}) (?P<done>{_WHOLE})
      (?: [ \t]*+/[ \t]*+ (?:(?P<total>{_WHOLE})(?![\w./])|Unknown|\?) | it[ \t]\[ )
    """,
    re.X,
)
_NO_WORD = re.compile(r"\W+")


def fold(name: str) -> str:
    """Fold a metric's name to the form in which names are compared: ``Val/Loss`` is val_loss."""
    first, line, rest = _NO_WORD.sub("_", name).strip("_").lower().partition("_")
    return _SETS[first] + rest if line and first in _SETS else first + line + rest


@dataclass(slots=True)
class Reading:
    """What one line says."""

    values: dict[str, float] = field(default_factory=dict)
    """By folded name."""
    step: float | None = None
    total: float | None = None
    """How many steps there are, where a bar says so."""
    epoch: float | None = None
    marked: bool = False
    """Whether the numbers stand behind ``:`` or ``=``; else it may be prose."""


def read(line: str) -> Reading:
    """Read the numbers of a line; what is no number behind a name is passed over."""
    found, of = Reading(), ""
    steps: dict[str, tuple[float, float | None]] = {}
    spans: list[tuple[int, int]] = []
    for match in _PAIR.finditer(line):
        if match["set"]:
            of = _SETS[match["set"].lower()]
            continue
        name = fold(match["name"])
        value = _float(match["number"])
        total = _float(match["total"]) if match["total"] else None
        spans.append(match.span())
        bare = name.removeprefix("train_")
        if bare in _EPOCHS:
            found.epoch = value if abs(value) < _FARTHEST else None
        elif bare in _STEPS:
            if abs(value) < _FARTHEST and (total or 0) < _FARTHEST:
                steps.setdefault(bare, (value, total))
        elif name:
            found.marked |= match["mark"] is not None
            own = name.startswith(tuple(_SETS.values()))
            # "Accuracy: 9900/10000" is a share.
            found.values[name if own else of + name] = value / total if total else value
    if steps:
        found.step, found.total = steps[min(steps, key=_STEPS.index)]
    else:
        for bar in _PROGRESS.finditer(line):
            done, total = _float(bar["done"]), _float(bar["total"]) if bar["total"] else None
            inside = any(start <= bar.start() < end for start, end in spans)
            if not inside and done <= (done if total is None else total) < _FARTHEST:
                found.step, found.total = done, total
                break
    return found


def _float(digits: str) -> float:
    return float(digits.replace(",", ""))
