"""The part of a cell's header that a builder provides: a :class:`BuildSpec`."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True)
class BuildSpec:
    """Requirements of the replicas besides the source; a builder provides them."""

    base: str | None = None
    """Base image; None means the job's image."""
    registry: str | None = None
    """Repository to which the image is pushed: ``host/team/cells``."""
    packages: tuple[str, ...] = ()
    """Requirement specifiers for pip."""
    requirements: str | None = None
    """Requirements file, relative to the user's folder."""
    pip_index: str | None = None
    apt: tuple[str, ...] = ()
    """Packages of the image's Linux distribution."""
    conda_env: str | None = None
    """Environment file for conda, relative to the user's folder."""
    dockerfile: str | None = None
    """Dockerfile that builds the environment."""
    s2i_builder: str | None = None
    """Image with the scripts of source-to-image."""
    push_secret: str | None = None
    """Secret with registry passwords, for the kernel and for pods that push."""
    pip_secret: str | None = None
    """Secret with a ``pip.conf`` for a build pod."""

    @property
    def needed(self) -> bool:
        """Return whether Python packages have to be installed."""
        return bool(self.packages or self.requirements)

    @property
    def wishes(self) -> frozenset[str]:
        """Return the fields that a builder must support; the other fields only configure it."""
        how = ("registry", "pip_index", "push_secret")
        names = [field.name for field in fields(self) if field.name not in how]
        return frozenset(name for name in names if getattr(self, name))
