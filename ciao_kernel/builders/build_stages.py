"""Progress of a build: its executor names each instruction of the Dockerfile before it runs it."""

from __future__ import annotations

from ciao_kernel.builders.dockerfile import instructions

_MARK = "[build] "
_NOT_RUN = frozenset({"FROM", "ARG"})
"""Instructions that the executor does not name, or only inside of a stage."""


class BuildStages:
    """Counts the instructions that have ended.

    Args:
        text: The Dockerfile of the build.
    """

    def __init__(self, text: str) -> None:
        self._lines = [
            _words(f"{one.name} {one.rest}")
            for one in instructions(text)
            if one.name not in _NOT_RUN
        ]
        self.done = 0
        self.total = len(self._lines)

    def read(self, text: str) -> bool:
        """Read a message of the executor; return whether it names an instruction.

        Names come in the order of the Dockerfile, so an instruction that begins has ended all
        instructions before it. A message that names none, or one of a base's own, is left out.
        """
        words = _words(text.removeprefix(_MARK))
        name, _, rest = words.partition(" ")
        words = f"{name.upper()} {rest}"
        if words not in self._lines[self.done :]:
            return False
        self.done = self._lines.index(words, self.done)
        return True


def _words(text: str) -> str:
    return " ".join(text.split())
