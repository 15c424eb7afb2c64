"""The slices of the second tier, and which of them go with a commit.

`python3 -m tests.suites.slices` prints the latter. Standard library only: .ci/run asks before
anything is installed.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

SLICES = {
    "rig": "the tests' own cluster: raising, lowering, its fault tools",
    "browser": "Notebook 7 beside JupyterLab, the dark theme, narrow pages, long logs",
    "operators": "every job kind and framework on a cluster, Kubeflow Trainer, the older operator",
    "packages": "every framework on this machine; rare faults of packages, wheels and indexes",
    "gateway": "Enterprise Gateway, its provisioners, JupyterHub, SoS; Kueue, the metrics server; "
    "packages beside ciao",
    "docs": "the documentation's longer pages, notebooks; hostile cells and texts",
    "builders": "s2i's own program, rare faults and refusals of builders and registries",
    "faults": "rare faults of clusters, nodes, connections, kernels; rare states of jobs",
    "trials": "many jobs, interrupts and faults in a row, with their figures",
    "oldest": "the tests of kernel and Kubernetes on the oldest packages that ciao supports",
}
"""What each is about."""
_AT_ONCE = 2


def of_commit(number: int) -> list[str]:
    """Return the slices of a commit by its number: five commits in a row have all of them."""
    names = list(SLICES)
    first = number * _AT_ONCE % len(names)
    return names[first : first + _AT_ONCE]


def commit_number(folder: Path) -> int:
    """Return how many commits led to the one that is checked out; 0 outside a repository."""
    argv = ["git", "-C", str(folder), "rev-list", "--count", "HEAD"]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
    except FileNotFoundError:  # no git
        return 0
    return int(done.stdout) if done.returncode == 0 else 0


if __name__ == "__main__":
    print(*of_commit(commit_number(Path(__file__).parent)))
