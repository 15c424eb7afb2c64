"""Cells on the cluster, run by a user who has the Role of deploy/rbac and nothing more."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest
import yaml

from ciao_kernel import background
from ciao_kernel.config import Settings
from ciao_kernel.errors import BackendError, CiaoError
from ciao_kernel.kube.client import Client
from ciao_kernel.model import Job, Owner, Replica, Status
from ciao_kernel.model.queries import Details
from ciao_kernel.plugins import Backend
from ciao_kernel.session import copying
from ciao_kernel.session.plugin_registry import Registry
from ciao_kernel.session.session import Session
from ciao_kernel.session.stopping import Lifetime
from tests.cluster.faults.proxy import Proxy
from tests.cluster.faults.users import Rule, User
from tests.cluster.namespace import Namespace
from tests.cluster.waiting import until
from tests.helpers.jobs import PATIENCE, Ended, Recorder

T = TypeVar("T")
CLAIM = "team-data"
CPU_REQUEST = "10m"
"""Small: the test cluster's node has few processors, on which many jobs run beside each other."""
RBAC = Path(__file__).parents[3] / "deploy" / "rbac"
ROLE = RBAC / "role.yaml"
EXEC = RBAC / "exec-role.yaml"
JOBS = RBAC / "jobs-role.yaml"
"""For Indexed Jobs, in place of ROLE."""
TRAIN = RBAC / "trainer-role.yaml"
"""For TrainJobs, likewise."""


def leftovers(team: Team, kinds: str) -> list[str]:
    """What ciao and the cluster made of these kinds, and is still there."""
    found = team.namespace.get(kinds)["items"]
    names = sorted(f"{item['kind']}/{item['metadata']['name']}" for item in found)
    return [name for name in names if not name.endswith("/kube-root-ca.crt")]


def stop_at(team: Team, cell: str, text: str, replica: str) -> None:
    """Press stop when a replica of a cell has said something; wait until all is cleaned up."""

    async def stop(display: Recorder, work: asyncio.Task[Ended]) -> None:
        await display.until(text, replica=replica)
        work.cancel()
        await asyncio.wait({work})
        await background.wait_until_idle(PATIENCE)

    with pytest.raises(asyncio.CancelledError):
        team.run(cell, during=stop)


def before_request(
    patch: pytest.MonkeyPatch, pattern: str, then: Callable[[], object] = lambda: None
) -> asyncio.Event:
    """Return an event that comes before the first request of a kind that this process sends.

    Args:
        patch: Takes the hook away.
        pattern: Matches its method and path, such as ``^POST .*/tfjobs$``; no dry run counts.
        then: Is done before the event, and so before the request.
    """
    reached, real, found = asyncio.Event(), Client._call, list[str]()

    async def call(
        self: Client, method: str, path: str, query: Any, *more: Any, **named: Any
    ) -> Any:
        if not found and re.search(pattern, f"{method} {path}") and "dryRun" not in query:
            found.append(path)
            await asyncio.to_thread(then)
            reached.set()
        return await real(self, method, path, query, *more, **named)

    patch.setattr(Client, "_call", call)
    return reached


async def let_go(team: Team, backend: Backend, job: Job, replica: Replica) -> None:
    """Copy the file `go`, for which a program waits; it may end before the copy has ended."""
    file = team.folder / "go"
    file.write_text("on")
    with contextlib.suppress(BackendError):
        await copying.give(backend, job, replica, file, "./", team.settings())


def delete_only_job(team: Team, kinds: str) -> None:
    """Delete the only job as a user does; nothing of these kinds may be left then."""

    async def work(session: Session) -> None:
        ((job, _),) = await session.jobs()
        await session.backend("kubernetes").delete(job)

    team._ask(work)
    until(lambda: leftovers(team, kinds) == [], "everything to be gone", PATIENCE)


def rules(file: Path = ROLE) -> list[Rule]:
    """The Role that users are told to have."""
    role = yaml.safe_load(file.read_text())
    return [Rule(r["resources"], r["verbs"], r["apiGroups"]) for r in role["rules"]]


@dataclass
class Team:
    """A namespace, a user of it, and the folder where that user works."""

    namespace: Namespace
    user: User
    folder: Path
    storage: Path
    images: dict[str, str]

    def settings(self, **changes: Any) -> Settings:
        base = {
            "storage": self.storage,
            "images": self.images,
            "namespace": self.namespace.name,
            "cpu_request": CPU_REQUEST,
        }
        return Settings(**{**base, **changes})

    def run(
        self,
        text: str,
        *,
        during: Callable[[Recorder, asyncio.Task[Ended]], Awaitable[Any]] | None = None,
        variables: dict[str, Any] | None = None,
        lifetime: Lifetime | None = None,
        **settings: Any,
    ) -> Ended:
        """Run a cell to its end; `during` runs beside it.

        With a `lifetime`, as in a kernel, lines may come behind the cell's end: all are waited for,
        and `Ended.shown` has what the cell showed at its end.
        """

        async def main() -> Ended:
            registry, display = Registry({}), Recorder()
            owner = Owner("a test", os.getpid())
            session = Session(registry, owner, self.settings(**settings), lifetime)
            work = asyncio.ensure_future(self._ended(session, text, display, variables))
            try:
                if during:
                    await during(display, work)
                ended = await work
                await background.wait_until_idle(PATIENCE)
                return ended
            finally:
                await registry.close()

        return asyncio.run(main())

    async def _ended(
        self,
        session: Session,
        text: str,
        display: Recorder,
        variables: dict[str, Any] | None = None,
    ) -> Ended:
        try:
            result = await session.run(text, display, self.folder, variables=variables)
            return Ended(display, result)
        except CiaoError as error:
            shown = {replica: display.data(replica) for replica in display.replicas}
            return Ended(display, error=error, shown=shown)

    def jobs(self) -> list[tuple[Job, Status]]:
        """What `ciao jobs` would list."""
        return self._ask(lambda session: session.jobs())

    def details(self) -> Details:
        """What `ciao describe` knows of the newest job."""

        async def newest(session: Session) -> Details:
            job, _ = (await session.jobs())[-1]
            backend, job, _ = await session.find(job.name)
            return await backend.details(job)

        return self._ask(newest)

    def _ask(self, question: Callable[[Session], Coroutine[Any, Any, T]], **settings: Any) -> T:
        async def main() -> T:
            registry = Registry({})
            try:
                own = self.settings(**settings)
                return await question(Session(registry, Owner("a test"), own))
            finally:
                await registry.close()

        return asyncio.run(main())

    def left(self) -> list[str]:
        """What ciao made and is still there."""
        found = self.namespace.get("tfjobs,pytorchjobs,pods,configmaps")["items"]
        return sorted(
            f"{item['kind']}/{item['metadata']['name']}"
            for item in found
            if item["metadata"]["name"] != "kube-root-ca.crt"
        )


@pytest.fixture
def team(namespace: Namespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Team:
    """A user with the Role, signed in by KUBECONFIG; small images, so that jobs are fast."""
    return made(namespace, tmp_path, monkeypatch, rules())


@pytest.fixture
def proxy(proxy: Proxy, team: Team, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Proxy:
    """What stands between the user and the API server."""
    own = Path(os.environ["KUBECONFIG"])
    monkeypatch.setenv("KUBECONFIG", str(proxy.kubeconfig(tmp_path / "proxied", own)))
    return proxy


def made(
    namespace: Namespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rights: list[Rule]
) -> Team:
    """A user with these rights."""
    user = User(namespace, *rights)
    user.create()
    admin = Path(namespace.cluster.environment["KUBECONFIG"])
    own = user.token().kubeconfig(tmp_path / "kubeconfig", admin)
    monkeypatch.setenv("KUBECONFIG", str(own))
    folder = tmp_path / "notebook"
    folder.mkdir()
    tools = namespace.cluster.image("tools")
    images = {"tensorflow": tools, "pytorch": tools}
    return Team(namespace, user, folder, tmp_path / "storage", images)


@pytest.fixture
def claim(namespace: Namespace, request: pytest.FixtureRequest) -> Iterator[str]:
    """A claim of the team, with a folder of the node behind it; its parameter is another name."""
    name = str(getattr(request, "param", CLAIM))
    volume = f"{namespace.name}-data"
    spec = {"accessModes": ["ReadWriteMany"], "storageClassName": volume}
    folder = {"path": f"/var/tmp/{volume}", "type": "DirectoryOrCreate"}
    disk = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": volume},
        "spec": {**spec, "capacity": {"storage": "1Gi"}, "hostPath": folder},
    }
    namespace.cluster.kubectl("create", "-f", "-", text=json.dumps(disk))
    namespace.create_objects(
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": name},
            "spec": {**spec, "resources": {"requests": {"storage": "1Gi"}}},
        }
    )
    yield name
    namespace.cluster.kubectl("delete", "persistentvolume", volume, "--wait=false")
