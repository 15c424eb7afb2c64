"""Fixtures for all tests: a user's place, real kernels in it, figures for the summary."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.browser import chromium, fixtures
from tests.browser.fixtures import browser, installed, open_lab, serve
from tests.helpers import loopback
from tests.suites import durations, groups, hangs, parts, tiers, told, workers

__all__ = ["browser", "installed", "open_lab", "serve"]

TESTS = Path(__file__).parent


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let a run choose tiers."""
    text = "tiers to run: first, a slice of the second, rest, all (tests/README.md)"
    parser.addoption("--tiers", default="", help=text)
    text = "the packages are the oldest that ciao supports: most of the tests are a slice then"
    parser.addoption("--oldest", action="store_true", help=text)
    text = "run a part of the files of tests/unit, for example 2/6: the second of six"
    parser.addoption("--part", default="", help=text)


def pytest_configure(config: pytest.Config) -> None:
    """Make the tiers' markers known, and be as a terminal is for what the tests start."""
    for text in tiers.MARKERS:
        config.addinivalue_line("markers", text)
    hangs.prepare(config)
    for number in (signal.SIGINT, signal.SIGHUP):
        # In a shell's background and by nohup it is ignored, which programs inherit, and not so
        # where a function does as much.
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, lambda *_: None)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave files of tests/unit to the processes that run the other parts."""
    part = config.getoption("--part")
    return True if part and parts.leaves_out(collection_path, TESTS / "unit", part) else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the tests of the tiers asked for, and those that need no browser where there is none.

    In continuous integration those with a browser stay, and fail: .ci/run installs one, or says
    that it cannot.
    """
    tiers.choose(config, items)
    wanted = os.environ.get("CI") and os.environ.get("CIAO_TEST_BROWSER") != "none"
    left_out = [] if wanted else fixtures.without_browser(items)
    if left_out:
        told.left_out(config, f"{len(left_out)} tests that need a browser: {chromium.missing()}")
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]
    groups.form(items)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Give the tests of this machine a network of their own; those of a cluster need the common.

    Here and not beside them: pytest asks this hook of every conftest.py for every test.
    """
    own = any(item.path.is_relative_to(TESTS / name) for name in ("integration", "browser"))
    own = own and not item.get_closest_marker("index")
    with loopback.entered() if own else contextlib.nullcontext():
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    """Note what was used before a test."""
    durations.begin(item)
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    """Note what a test has used, its fixtures' ends with it, which have a limit."""
    try:
        with hangs.limited(item.config):
            return (yield)
    finally:
        durations.end(item)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[Any]:
    """Add to a failure what its pages show."""
    report = yield
    if report.when == "call" and report.failed:
        report.sections.extend(fixtures.evidence(item))
    return report


@pytest.fixture(scope="session", autouse=True)
def no_cluster() -> Iterator[None]:
    """Keep the user's own cluster out of the tests; those that want one name it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KUBECONFIG", os.devnull)
        patch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
        yield


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    """Let each replica compute in one thread: several at once would wait for each other's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", os.environ.get("OMP_NUM_THREADS", "1"))
        yield


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Any]:
    """A user's folders and environment; nothing of it runs when the test is over."""
    from tests.helpers.kernels import Place

    made = Place(tmp_path)
    yield made
    made.kill_all()


@pytest.fixture
def start_kernel(place: Any) -> Iterator[Callable[..., Any]]:
    """Starts real kernels (tests.helpers.kernels.Kernel) that end with the test."""
    from tests.helpers.kernels import Kernel

    with contextlib.ExitStack() as stack:

        def start(name: str = "ciao", env: dict[str, str] | None = None) -> Any:
            kernel = Kernel(place, name, env)
            stack.callback(kernel.shutdown, now=True)
            return kernel

        yield start


@pytest.fixture
def kernel(start_kernel: Callable[..., Any]) -> Any:
    """A real ciao kernel."""
    return start_kernel()


@pytest.fixture
def figure(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Keeps a measured figure for the end of the run."""
    return lambda text: told.figure(request.config, f"{request.node.name}: {text}")


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Tell the controller what there is to tell; no test of these tiers is no failure."""
    told.send(session.config)
    nothing = exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED
    if nothing and session.config.getoption("--tiers"):
        session.exitstatus = pytest.ExitCode.OK


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Start a worker of pytest-xdist."""
    workers.prepare(node)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """Tell the controller which tests stay together, before it hears of the tests."""
    workers.write(session)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Share tests out by their groups."""
    return workers.scheduler(config, log)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take what a worker of pytest-xdist tells at its end; one that crashed tells nothing."""
    told.receive(node.config, getattr(node, "workeroutput", {}))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show what was measured, where the time went, and what was left out."""
    if not terminalreporter.config.getoption("--part"):  # `make` shows those of all parts
        durations.write(terminalreporter)
    told.write(terminalreporter)
