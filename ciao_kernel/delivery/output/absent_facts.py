"""Reasons why variables of ``%output`` have not come back, as a replica tells: foreign input."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ciao_kernel.delivery.output.absent_values import FILE, FOLDER, NEAR, PATH


class AbsentFacts:
    """The part of an index of values that tells of missing ones.

    Args:
        index: The index.
    """

    def __init__(self, index: Mapping[str, Any]) -> None:
        absent, raised = index.get("absent"), index.get("raised")
        self._absent = absent if isinstance(absent, dict) else {}
        self.raised = _name(raised)
        """The exception by which the program ended; "" without one."""

    def sentence(self, name: str) -> str:
        """Return why there is no value of a name."""
        told = self._absent.get(name)
        told = told if isinstance(told, dict) else {}
        if told.get(PATH) == FOLDER:
            return f"there is a folder {name}, and no variable: write `%output={name}/`."
        if told.get(PATH) == FILE:
            return f"there is a file {name}, and no variable: write `%output=./{name}`."
        if self.raised:
            return f"{name} did not exist when the program ended by {self.raised}."
        near = _name(told.get(NEAR))
        meant = f" Did you mean {near}?" if near else ""
        return f"{name} did not exist when the program ended.{meant}"


def _name(word: object) -> str:
    """Return a name of Python, "" for anything else that a pod may send."""
    return word if isinstance(word, str) and word.isidentifier() and len(word) <= 80 else ""
