"""The spelling of names: ``cleanPolicy``, ``clean-policy`` and ``CLEAN_POLICY`` are one.

A wrong name is compared with those that there are.
"""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Iterable
from dataclasses import dataclass

_LIKE, _ALIKE = 0.6, 0.75
"""Least likeness of a name at all, and that of one which is meant whatever its beginning is."""
_MOST = 5


def key(name: str) -> str:
    """Normalize a name as written (``clean-policy``) for comparison."""
    return name.replace("-", "").replace("_", "").lower()


@dataclass(frozen=True, slots=True)
class Likeness:
    """A name, and how like it a word is.

    Args:
        name: The name.
        word: The word.
        ratio: The part of their letters that both have, from 0 to 1.
        beginning: Letters with which both begin.
    """

    name: str
    word: str
    ratio: float
    beginning: int

    @property
    def is_close(self) -> bool:
        """Almost all letters are those of the name, or both have most of their beginning."""
        shorter = min(len(self.word), len(self.name))
        return self.ratio >= _ALIKE or self.beginning >= _ALIKE * shorter

    @property
    def rank(self) -> float:
        """Order among several names: a common beginning counts most."""
        return self.ratio + self.beginning / (2 * max(len(self.word), len(self.name)))


def like(word: str, names: Iterable[str]) -> list[Likeness]:
    """Return the few names that a word may mean, the most like first."""
    near = difflib.get_close_matches(word, list(names), n=_MOST, cutoff=_LIKE)
    return [_compared(word, name) for name in near]


def _compared(word: str, name: str) -> Likeness:
    pairs = zip(word, name, strict=False)
    same = len([*itertools.takewhile(lambda pair: pair[0] == pair[1], pairs)])
    return Likeness(name, word, difflib.SequenceMatcher(None, name, word).ratio(), same)
