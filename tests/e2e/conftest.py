"""Fixtures for tests on a real cluster: the cluster, a namespace a test, evidence on failure."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest

from tests.cluster import extras, ground
from tests.cluster.cluster import Cluster
from tests.cluster.errors import ClusterError
from tests.cluster.external import ExternalCluster
from tests.cluster.namespace import Namespace

_NAMESPACE = pytest.StashKey[Namespace]()
_LEFT_OUT = pytest.StashKey[str]()
_OURS = pytest.StashKey[Cluster]()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the cluster's tests out where no cluster can be, which the summary says in a line.

    In continuous integration they stay, and fail: there a cluster has to be.
    """
    reason = ground.unfit()
    if not reason or os.environ.get("CI") or os.environ.get("CIAO_TEST_KUBECONFIG"):
        return
    left_out = [item for item in items if "cluster" in getattr(item, "fixturenames", ())]
    if left_out:
        config.stash[_LEFT_OUT] = f"{len(left_out)} tests that need a cluster: {reason}"
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what was left out, and what would run it."""
    if said := terminalreporter.config.stash.get(_LEFT_OUT, None):
        terminalreporter.write_line(
            f"LEFT OUT {said}; or name one: CIAO_TEST_KUBECONFIG=FILE (docs/cluster.md)"
        )


def pytest_collection_finish(session: pytest.Session) -> None:
    """Raise the cluster before the first test: building it the first time takes minutes.

    Not in a fixture, where it would count as the first test's time and nobody saw how far it is.
    """
    wanted = any("cluster" in getattr(item, "fixturenames", ()) for item in session.items)
    if not wanted or session.config.option.collectonly or os.environ.get("CIAO_TEST_KUBECONFIG"):
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


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Lower the cluster, unless it was up before."""
    if own := session.stash.get(_OURS, None):
        own.down()


@pytest.fixture(scope="session")
def cluster() -> Cluster | ExternalCluster:
    """The cluster of CIAO_TEST_KUBECONFIG, or this machine's own."""
    if os.environ.get("CIAO_TEST_KUBECONFIG"):
        return ExternalCluster()
    return Cluster()


@pytest.fixture(scope="session")
def own_cluster(cluster: Cluster | ExternalCluster) -> Cluster:
    """The cluster whose parts may be broken: this machine's own, never somebody else's."""
    if isinstance(cluster, ExternalCluster):
        pytest.skip("it breaks parts of the cluster, and that of CIAO_TEST_KUBECONFIG is not ours")
    return cluster


def _asks_for(name: str) -> Callable[..., None]:
    @pytest.fixture(scope="session", name=f"{extras.FIXTURE}{name}")
    def asks(cluster: Cluster | ExternalCluster) -> None:
        if isinstance(cluster, Cluster):
            cluster.bring(name)

    return asks


# `with_kaniko` and so on: a test or a fixture that lists one has that extra.
globals().update({f"{extras.FIXTURE}{name}": _asks_for(name) for name in extras.EXTRAS})


@pytest.fixture
def namespace(
    cluster: Cluster | ExternalCluster, request: pytest.FixtureRequest
) -> Iterator[Namespace]:
    """A fresh namespace, deleted when the test is over."""
    made = Namespace(cluster, request.node.name)
    request.node.stash[_NAMESPACE] = made
    made.create()
    yield made
    made.delete()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Add to a failure what the cluster knew at that moment: the namespace goes right after."""
    report = yield
    if report.when == "call" and report.failed and (made := item.stash.get(_NAMESPACE, None)):
        for title, text in made.evidence().items():
            report.sections.append((title, text))
    return report
