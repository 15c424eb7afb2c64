"""The folder tree from which files are delivered.

A link in the notebook's folder may lead anywhere: to ``/etc/shadow``, or to data of another user.
The rule is that of a build context of Docker and of a clone of git: a link is followed inside the
notebook's folder, and inside the git repository that contains it, but not out of them.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from ciao_kernel.delivery.input.ignore_files import repository
from ciao_kernel.home_folder import home


@dataclass(frozen=True, slots=True)
class Boundary:
    """Folders inside which links are followed.

    Args:
        tops: The folders, without links in their paths; the widest is last.
    """

    tops: tuple[Path, ...]

    @classmethod
    def around(cls, folder: Path) -> Boundary:
        """Return the boundary for a notebook's folder."""
        own = Path(os.path.realpath(folder))
        above = Path(os.path.realpath(repository(folder.absolute())))
        real_home = Path(os.path.realpath(home()))
        # Some users keep the settings of their home in a repository; it still is no project.
        wide = above != own and not real_home.is_relative_to(above)
        return cls((own, above) if wide else (own,))

    @property
    def top(self) -> Path:
        """The widest folder, for messages."""
        return self.tops[-1]

    def is_outside(self, real: Path) -> bool:
        """Return whether a place is outside.

        Args:
            real: The place, without links in its path.
        """
        return not any(real.is_relative_to(top) for top in self.tops)
