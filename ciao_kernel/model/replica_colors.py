"""One colour for each replica: in the prefix of its lines, in the table and in the plot.

A colour depends on the role and the index alone, so a replica keeps it in every cell and terminal,
and after the number of replicas has changed.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass

from ciao_kernel.model.replica import Replica

# Codes of the 256-colour palette of xterm (the cube 16 to 231), whose values are the same on pages
# and in terminals. Contrast of each is between 4.0 and 4.8 on white and on JupyterLab's dark
# background (#111111); no colour has more than 4.35 on both.
_WORKERS = (31, 130, 133, 64, 63, 29, 131, 163)
_ROLES = {"chief": (98,), "master": (98,), "ps": (28, 132), "evaluator": (30,)}
_LEVELS = (0, 95, 135, 175, 215, 255)
"""Red, green or blue for each of the six steps of the cube."""


@dataclass(frozen=True, slots=True)
class ReplicaColor:
    """Colour of a replica, for terminals and for pages."""

    code: int
    """Number in the 256-colour palette of terminals."""
    repeated: bool
    """Another replica of the role with a lower index has this colour: a curve is dashed."""

    @property
    def sgr(self) -> str:
        """Parameters of the terminal sequence ``ESC [ … m`` that selects the colour."""
        return f"38;5;{self.code}"

    @property
    def html(self) -> str:
        """The colour for HTML and SVG, ``#0087af``."""
        step = self.code - 16
        return f"#{_LEVELS[step // 36]:02x}{_LEVELS[step // 6 % 6]:02x}{_LEVELS[step % 6]:02x}"


def color_of(replica: Replica) -> ReplicaColor:
    """Return the colour of a replica, the same wherever the replica is shown."""
    if replica.role == "worker" or replica.role in _ROLES:
        codes, first = _ROLES.get(replica.role, _WORKERS), 0
    else:  # A role of a plug-in: its replicas begin at a place that only its name decides.
        codes, first = _WORKERS, zlib.crc32(replica.role.encode("utf-8", "replace"))
    place = (first + replica.index) % len(codes)
    return ReplicaColor(codes[place], replica.index // len(codes) % 2 == 1)
