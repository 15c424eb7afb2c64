"""The slices of the second tier, and which of them goes with a commit.

`python3 -m tests.suites.slices` prints the latter. Standard library only: .ci/run asks before
anything is installed.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

SLICES = {
    "rig": "the tests' own cluster: raising, lowering, its fault tools",
    "operators": "every job kind, and the older training operator",
    "gateway": "Enterprise Gateway, its provisioners, JupyterHub; packages beside ciao",
    "docs": "the documentation's pages on the cluster; a hundred thousand hostile cells",
    "builders": "s2i's own program, rare faults of builders and registries",
    "trials": "many jobs, interrupts and faults in a row, with their figures",
}
"""What each is about."""


def of_commit(number: int) -> str:
    """Return the slice of a commit by its number: so many commits in a row have all of them."""
    return list(SLICES)[number % len(SLICES)]


def commit_number(folder: Path) -> int:
    """Return how many commits led to the one that is checked out; 0 outside a repository."""
    argv = ["git", "-C", str(folder), "rev-list", "--count", "HEAD"]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
    except FileNotFoundError:  # no git
        return 0
    return int(done.stdout) if done.returncode == 0 else 0


if __name__ == "__main__":
    print(of_commit(commit_number(Path(__file__).parent)))
