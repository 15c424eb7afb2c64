"""Tells how the cluster is: for people, in a terminal."""

import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

from tests.cluster import addons, recipes
from tests.cluster.cluster import Cluster
from tests.cluster.errors import ClusterError
from tests.cluster.layout import cache


def print_use(cluster: Cluster, seconds: float) -> None:
    """Print what one needs to know to use it."""
    at = cluster.at
    names = ", ".join(image.name for image in recipes.IMAGES)
    print(f"==> the cluster is up ({seconds:.1f} s)")
    print(f"    export KUBECONFIG={at.kubeconfig}")
    print(f"    kubectl     {cluster.kubectl_argv()[0]}")
    print(f"    API server  {at.server}")
    print(f"    registry    {at.registry} (http) with {names}")
    print("    more        make cluster-status; make cluster-down", flush=True)


def print_status(cluster: Cluster) -> int:
    """Print one line a part; return 0 if all that should run is well, else 1."""
    if (pid := cluster.node.pid) is None:
        print(f"the cluster is not up (raise it: make cluster); cache: {cache()}")
        return 1
    running = cluster.node.parts()
    names = list(cluster.parts)
    with ThreadPoolExecutor(len(names)) as pool:
        well = dict(zip(names, pool.map(cluster.well, names), strict=True))
    print(f"{'part':<20}{'state':<22}{'pid':>8}  {'listens':<36}log")
    print(f"{'node':<20}{'well':<22}{pid:>8}  {cluster.at.address:<36}{cluster.at.logs}/node.log")
    good = True
    for name, part in cluster.parts.items():
        seen = running.get(name)
        if seen is None:
            state, number = "not started", ""
        elif seen["code"] is not None:
            state, number = f"ended with {seen['code']:.0f}", ""
        else:
            number = str(cluster.node.host_pid(int(seen["pid"])) or "?")
            state = _age(seen["since"], "well" if well[name] else "does not answer")
        good &= well[name] or not part.usual
        log = cluster.at.logs / f"{name}.log" if seen else "-"
        print(f"{name:<20}{state:<22}{number:>8}  {part.listens:<36}{log}")
    for namespace, name in addons.DEPLOYMENTS:
        try:
            path = "jsonpath={.status.readyReplicas}/{.spec.replicas}"
            ready = cluster.kubectl("get", f"deployment/{name}", "-n", namespace, "-o", path,
                                    "--request-timeout=10s")  # fmt: skip
        except ClusterError:
            ready = "unknown"
        good &= ready == "1/1"
        state = "well" if ready == "1/1" else f"{ready} pods ready"
        log = f"{cluster.at.pod_logs}/{namespace}_{name}-*"
        print(f"{name:<20}{state:<22}{'pod':>8}  {namespace:<36}{log}")
    size = subprocess.run(["du", "-sh", cache()], capture_output=True, text=True, check=False)
    print(f"\nKUBECONFIG={cluster.at.kubeconfig}")
    print(f"cache {cache()}: {size.stdout.split()[0] if size.stdout else '?'}")
    return 0 if good else 1


def _age(since: float, word: str) -> str:
    return f"{word} for {time.time() - since:,.0f} s"
