"""Jobs of ciao in a namespace with the policies of deploy/, on a network that enforces them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.namespace import Namespace
from tests.e2e.gateway.place import listens
from tests.e2e.jobs.conftest import JOBS, Team, made, rules
from tests.e2e.jobs.test_indexed_jobs import MEETS, RANKS
from tests.e2e.policies.outside import NEAR, WEB, Outside
from tests.e2e.policies.reach import End
from tests.e2e.policies.test_networks import rendered

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.second("gateway"),
    pytest.mark.xdist_group("policies"),
]

TRIES = """
import socket, time

def passes(place):
    try:
        socket.create_connection(place, 3).close()
        return True
    except OSError:
        return False

began = time.monotonic()
# kube-router has rules for a pod some moments after it runs.
while passes({api}) and time.monotonic() - began < 120:
    time.sleep(0.1)
print("closed after", round(time.monotonic() - began, 1), "s", flush=True)
for name, place in {places}.items():
    print(name, "open" if passes(place) else "closed", flush=True)
"""


SUM = """
from mpi4py import MPI

print("sum", MPI.COMM_WORLD.allreduce(MPI.COMM_WORLD.rank))
"""


@pytest.fixture
def namespace(
    enforced: Cluster, request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[Namespace]:
    """A team's, with the policies in force."""
    own = Namespace(enforced, request.node.name)
    own.create()
    try:
        own.create_objects(*rendered("team/network", tmp_path / "network", enforced, own.name))
        yield own
    finally:
        own.delete()


@pytest.fixture
def team(namespace: Namespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Team:
    return made(namespace, tmp_path, monkeypatch, [*rules(), *rules(JOBS)])


@pytest.mark.parametrize("api", ["operator", "job"])
def test_a_ps_and_its_workers_meet(team: Team, api: str) -> None:
    choice = "%api=job\n" if api == "job" else ""
    # Both workers decide: else one is ended with the other, perhaps before it has met the PS.
    header = f"%framework=tensorflow\n{choice}%ps=1\n%worker=2\n%successPolicy=allWorkers\n"
    ended = team.run(header + MEETS)
    assert ended.error is None, ended.error
    for number in range(2):
        name = f"worker-{number}"
        assert ended.display.data(name) == f"{name} got from the ps\n".encode()


def test_ranks_of_pytorch_meet_after_their_init_container(team: Team) -> None:
    """The operator's init container looks up the master's name."""
    ended = team.run(f"%framework=pytorch\n%runner=python\n%worker=1\n{RANKS}")
    assert ended.error is None, ended.error
    assert b"rank 1 of 2" in ended.display.data("master-0")


@pytest.mark.frameworks
@pytest.mark.usefixtures("with_mpi")
def test_a_launcher_starts_ranks_in_its_workers(
    team: Team, namespace: Namespace, enforced: Cluster, tmp_path: Path
) -> None:
    """Through the API server, which its own policy lets it reach."""
    made = rendered("team/mpi", tmp_path / "mpi", enforced, namespace.name, "launchers")
    namespace.create_objects(*made)
    images = {"mpi": enforced.image("mpi")}
    ended = team.run(f"%framework=mpi\n%worker=2\n{SUM}", images=images)
    assert ended.error is None, ended.error
    for number in range(2):
        assert ended.display.data(f"worker-{number}") == b"sum 1\n"


def test_a_program_reaches_public_addresses_and_nothing_near(
    team: Team, namespace: Namespace, enforced: Cluster, outside: Outside
) -> None:
    other = Namespace(enforced, "others")
    other.create()
    try:
        stranger = End(other, "stranger", {}, [443])
        stranger.start()
        stranger.wait()
        places = {
            "API": listens(enforced),
            "web": (WEB, 443),
            "near": (NEAR, 443),
            "stranger": (stranger.address, 443),
        }
        tries = TRIES.format(api=listens(enforced), places=places)
        ended = team.run(f"%framework=tensorflow\n%worker=1\n{tries}")
    finally:
        other.delete()
    assert ended.display.data("worker-0").decode().splitlines()[1:] == [
        "API closed", "web open", "near closed", "stranger closed",
    ]  # fmt: skip
