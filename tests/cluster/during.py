"""Keeps a cluster up as long as a command runs, for runs of tests with several processes."""

import os
import subprocess
from collections.abc import Sequence

from tests.cluster import ground
from tests.cluster.cluster import Cluster
from tests.cluster.extras import USUAL


def run(cluster: Cluster, argv: Sequence[str]) -> int:
    """Raise the cluster with the usual extras, run the command, lower it unless it was up before.

    Where no cluster can be, or another one is named, the command runs by itself: its tests are
    left out, or use that one. In continuous integration a cluster has to be.

    Returns:
        The command's exit code.

    Raises:
        ClusterError: it cannot be raised.
    """
    if os.environ.get("CIAO_TEST_KUBECONFIG") or (ground.unfit() and not os.environ.get("CI")):
        return subprocess.call(argv)
    ours = cluster.node.pid is None
    cluster.up(USUAL)
    try:
        return subprocess.call(argv)
    finally:
        if ours:
            cluster.down()
