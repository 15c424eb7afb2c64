"""Fixtures for tests on a real cluster: the cluster, a namespace a test, evidence on failure.

A test says by its fixture what it does to the cluster, and all but the last kind run side by side:

- `cluster`, `namespace`: what is its own, in a namespace of its own; on anybody's cluster.
- `local_cluster`, `proxy`: what only this machine's cluster has (a registry to push to, a node to
  run programs on), and nothing that another test would notice.
- `own_cluster`, `broken`: harm to what all tests share. It is marked `breaks_cluster`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest

from tests.cluster import extras, ground
from tests.cluster.cluster import Cluster
from tests.cluster.errors import ClusterError
from tests.cluster.external import ExternalCluster
from tests.cluster.faults.proxy import Proxy
from tests.cluster.namespace import Namespace
from tests.e2e import evidence, namespaces
from tests.suites import told

_OURS = pytest.StashKey[Cluster]()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the cluster's tests out where no cluster can be, which the summary says in a line.

    In continuous integration they stay, and fail: there a cluster has to be.
    """
    if (wrong := [item.nodeid for item in items if _mismarked(item)]) and not _worker():
        raise pytest.UsageError(f"{_MISMARKED}: {', '.join(wrong)}")
    reason = ground.unfit()
    if not reason or os.environ.get("CI") or os.environ.get("CIAO_TEST_KUBECONFIG"):
        return
    left_out = [item for item in items if _asks(item, "cluster", "raisable")]
    if left_out:
        told.left_out(
            config,
            f"{len(left_out)} tests that need a cluster: {reason}; or name one: "
            "CIAO_TEST_KUBECONFIG=FILE (docs/cluster.md)",
        )
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


def _asks(item: pytest.Item, *fixtures: str) -> bool:
    """Whether a test asks for one of these fixtures, by whatever way."""
    return not set(fixtures).isdisjoint(getattr(item, "fixturenames", ()))


def _mismarked(item: pytest.Item) -> bool:
    """Whether a test may break the cluster and does not say so, or the other way round."""
    return _asks(item, "own_cluster") != bool(item.get_closest_marker("breaks_cluster"))


_MISMARKED = "a test asks for own_cluster if and only if it is marked breaks_cluster"


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Fail who is not marked right before any harm is done, for workers cannot fail to collect."""
    if _mismarked(item):
        pytest.fail(_MISMARKED, pytrace=False)


def pytest_sessionstart(session: pytest.Session) -> None:
    """Raise the cluster before workers start, who cannot: each would find it down."""
    possible = not ground.unfit() or os.environ.get("CI")
    if session.config.getoption("numprocesses", None) and possible:
        _raise(session)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Raise the cluster before the first test: building it the first time takes minutes.

    Not in a fixture, where it would count as the first test's time and nobody saw how far it is.
    """
    if any(_asks(item, "cluster") for item in session.items) and not _worker():
        _raise(session)


def _worker() -> bool:
    """Whether this process is one of several in which pytest-xdist runs the tests."""
    return "PYTEST_XDIST_WORKER" in os.environ


def _raise(session: pytest.Session) -> None:
    if session.config.option.collectonly or os.environ.get("CIAO_TEST_KUBECONFIG"):
        return
    own = Cluster()
    if own.node.pid is None:
        session.stash[_OURS] = own
    with session.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        print()
        try:
            own.up(extras.wanted(session.items))
        except ClusterError as error:
            pytest.exit(f"the tests' cluster cannot be raised: {error}", returncode=1)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Lower the cluster, unless it was up before."""
    if own := session.stash.get(_OURS, None):
        own.down()


@pytest.fixture(scope="session")
def cluster() -> Cluster | ExternalCluster:
    """The cluster of CIAO_TEST_KUBECONFIG, or this machine's own."""
    if os.environ.get("CIAO_TEST_KUBECONFIG"):
        return ExternalCluster()
    own = Cluster()
    if own.node.pid is None:
        pytest.fail("the tests' cluster is not up: `make cluster` raises it", pytrace=False)
    return own


@pytest.fixture(scope="session")
def local_cluster(cluster: Cluster | ExternalCluster) -> Cluster:
    """This machine's own cluster: its registry takes images, its node runs programs.

    Whoever asks for it breaks nothing: other tests run beside.
    """
    if isinstance(cluster, ExternalCluster):
        pytest.skip("it needs the registry or the node of this machine's own cluster")
    return cluster


@pytest.fixture(scope="session")
def own_cluster(local_cluster: Cluster) -> Cluster:
    """The same, of which parts may be broken: never somebody else's, and nobody runs beside."""
    return local_cluster


@pytest.fixture
def proxy(local_cluster: Cluster) -> Iterator[Proxy]:
    """A proxy before the API server, which harms those alone who go through it."""
    with Proxy(local_cluster.at) as made:
        yield made


def _asks_for(name: str) -> Callable[..., None]:
    @pytest.fixture(scope="session", name=f"{extras.FIXTURE}{name}")
    def asks(cluster: Cluster | ExternalCluster) -> None:
        if isinstance(cluster, Cluster):
            cluster.bring(name)

    return asks


# `with_kaniko` and so on: a test or a fixture that lists one has that extra.
globals().update({f"{extras.FIXTURE}{name}": _asks_for(name) for name in extras.EXTRAS})


@pytest.fixture(scope="session")
def trainer(cluster: Cluster | ExternalCluster, with_trainer: None) -> None:
    """Kubeflow Trainer in the cluster, beside the training operator; it stays there."""
    if isinstance(cluster, Cluster):
        cluster.trainer()


@pytest.fixture
def namespace(
    cluster: Cluster | ExternalCluster, request: pytest.FixtureRequest
) -> Iterator[Namespace]:
    """A fresh namespace, deleted when the test is over."""
    yield from namespaces.fresh(cluster, request)


@pytest.fixture
def broken(own_cluster: Cluster, namespace: Namespace) -> Iterator[Cluster]:
    """The cluster, to be broken: whatever the test leaves, all parts do their work afterwards.

    It knows the namespace only to be mended before that is deleted.
    """
    yield own_cluster
    own_cluster.up()


@pytest.fixture(scope="session")
def raisable() -> None:
    """A machine on which a cluster can be raised; none need be up."""
    if os.environ.get("CIAO_TEST_KUBECONFIG"):
        pytest.skip("it is about raising a cluster, and CIAO_TEST_KUBECONFIG names one")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Add to a failure what the cluster knew at that moment: the namespace goes right after."""
    report = yield
    if (
        report.when == "call"
        and report.failed
        and (made := item.stash.get(namespaces.OF_TEST, None))
    ):
        evidence.add(report, lambda: made.evidence().items())
    return report
