"""Translate pip's errors about packages of an image."""

from __future__ import annotations

import re
from collections.abc import Callable

from ciao_kernel.delivery.packages import pip
from ciao_kernel.errors import SourceError

NO_MATCH = re.compile(
    r"No matching distribution found for (\S[^\r\n\";]*?)(?: ?;| \(from |[\r\n\"]|$)"
)
"""What pip does not find. pip 26.3 also says here what needs it: `lib>=9 (from app)`."""
_HAS = re.compile(
    r"satisfies the requirement \S+(?: \(from (?!-r )([^()]+)\))?"
    r"(?:(?!satisfies the requirement).)* \(from versions: ([^()]+)\)"
)
_BUILDS = re.compile(r"No wheel: (\S+) of (\S+|the requirements) would be built")
"""How :mod:`.pip_for_target` refuses a package."""
_UNFIT = re.compile(r"(?<!\S)(\S+\.whl) is not a supported wheel")
_KNOWN = 5
"""Number of versions that an error names: the newest of a package."""
_CONFLICT = re.compile(r"ResolutionImpossible|conflicting dependencies")
_CAUSE = re.compile(r"The conflict is caused by:\n((?: +\S[^\n]*(?:\n|$))+)")


class NoWheel(Exception):
    """A package has no wheel for the target, or is unknown.

    Args:
        wish: The package as it was requested.
        versions: Versions that have a wheel, as "1.0, 1.5"; "" if none is known.
        by: The package that requires it; "" if the user does.
    """

    def __init__(self, wish: str, versions: str = "", by: str = "") -> None:
        super().__init__(wish)
        self.wish, self.versions, self.by = wish, versions, by


def explained(error: pip.Failed, emit: Callable[[str], None]) -> Exception:
    """Return the error that pip's output means; emit its last lines if they add information."""
    text = "\n".join(error.lines)
    if _CONFLICT.search(text):
        for line in error.latest:
            emit(f"[pip] {line}")
        found = _CAUSE.search(text)
        why = "; ".join(line.strip() for line in found[1].splitlines()) if found else error.said
        return SourceError(
            f"the packages are not compatible: {why[:400]}.", "Change a requested version."
        )
    if builds := _BUILDS.search(text):
        return NoWheel(builds[1], by="" if builds[2] == "the requirements" else builds[2])
    told = error.explained()
    lacks = NO_MATCH.search(text) or _UNFIT.search(text)
    if lacks and "pip cannot install" in told.message:
        has = _HAS.search(text)
        by, versions = (has[1] or "", has[2]) if has else ("", "")
        known = [] if versions == "none" else versions.split(", ")
        return NoWheel(lacks[1], ", ".join(known[-_KNOWN:]), by)
    for line in error.latest:
        emit(f"[pip] {line}")
    return told
