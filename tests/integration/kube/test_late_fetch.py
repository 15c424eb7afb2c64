"""`ciao fetch` after a job's end: what the log or the bucket still has, and what is lost."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from ciao_kernel.backends.kubernetes.output import (
    output_claim,
    output_state,
    output_store,
    sent_files,
)
from ciao_kernel.config import Settings
from ciao_kernel.delivery.incoming_files import Listing
from ciao_kernel.delivery.output.returned_files import ReturnedFiles
from ciao_kernel.errors import BackendError
from ciao_kernel.kube.client import Client
from ciao_kernel.model import Event, Job, Notice, Replica
from ciao_kernel.model.outputs import OutputWay
from ciao_kernel.model.queries import Streams
from ciao_kernel.plugins import SentFiles
from ciao_kernel.session import fetching
from tests.integration.kube import test_output_log as by_log
from tests.integration.kube import test_output_store as by_store
from tests.integration.kube.test_output_log import WORKER, Kubelet, stamped, written
from tests.integration.kube.test_output_store import Store, wrote
from tests.integration.kube.test_responses import client, serving
from tests.integration.test_transfers import Pod

folder, keys = by_log.folder, by_store.keys
PATHS = ["model/", "absent.txt"]


@dataclass
class Backend:
    """A backend with one pod, into which nobody may go."""

    api: Client
    settings: Settings
    pod: dict[str, Any] | None
    item: dict[str, Any] = field(default_factory=dict)

    async def sent(self, job: Job, replica: Replica) -> SentFiles | None:
        return await sent_files.later(self.api, self.settings, job, replica, self.pod, self.item)

    async def execute(
        self, job: Job, replica: Replica, command: Sequence[str], streams: Streams
    ) -> int:
        raise BackendError(f"no command in {replica}")


def job(here: Path, header: str = "%output=model/ absent.txt\n") -> Job:
    return Job(
        "job", "kubernetes", "tensorflow", (WORKER,), 1.0, place="team",
        kind_of_place="namespace", header=header, folder=str(here),
    )  # fmt: skip


def item(annotations: dict[str, str]) -> dict[str, Any]:
    """The object of a job, which outlasts its pods."""
    template = {"metadata": {"annotations": annotations}, "spec": {}}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "TFJob",
        "metadata": {"name": "job"},
        "spec": {"tfReplicaSpecs": {"Worker": {"template": template}}},
        "status": {"conditions": [{"type": "Running", "status": "True"}]},
    }


async def fetched(
    backend: Backend,
    about: Job,
    words: Sequence[str] = PATHS,
    missing: Sequence[str] = ("absent.txt",),
) -> tuple[tuple[str, ...], list[str]]:
    """Fetch; return what the command writes, and the notices; other words are missing."""
    shown: list[Event] = []
    done = await fetching.fetch(
        backend,
        about,
        about.replicas,
        words,
        backend.settings,
        shown.append,  # type: ignore[arg-type]
    )
    assert done.missing == tuple(missing)
    return done.lines, [one.text for one in shown if isinstance(one, Notice)]


def test_the_log_of_an_ended_pod_still_has_the_files(folder: Path, tmp_path: Path) -> None:
    kubelet, here = Kubelet(stamped(written(folder))), tmp_path / "here"

    async def main() -> None:
        async with client(kubelet.answer) as api:
            backend = Backend(api, Settings(), by_log.pod())
            lines, notices = await fetched(backend, job(here))
            assert lines[0].startswith("brought back by the log: model/leer (0 bytes, worker-0)")
            assert notices == []
            assert (here / "model/net.bin").read_bytes() == (folder / "model/net.bin").read_bytes()
            # Once more: they are here, and others cannot be had.
            (here / "model/leer").write_text("changed by the user")
            lines, notices = await fetched(backend, job(here), ["other.csv"], missing=["other.csv"])
            assert lines[0].startswith("brought back by the log: model/leer")
            assert (here / "model/leer").read_text() == "changed by the user"
            (here / "model/net.bin").unlink()
            words = ["other.csv", "model/net.bin"]
            lines, notices = await fetched(backend, job(here), words, missing=words[:1])
            assert notices == ["worker-0 has ended, and gives the files of %output alone."]
            assert (here / "model/net.bin").exists()

    asyncio.run(main())
    assert len(kubelet.asked) == 2


def test_a_sidecar_that_still_writes_is_waited_for(folder: Path, tmp_path: Path) -> None:
    lines, ended = stamped(written(folder)), by_log.pod()
    kubelet, asked = Kubelet(lines[:-1]), []
    running = by_log.pod("Running")
    (sidecar,) = running["status"]["initContainerStatuses"]
    sidecar["state"] = {"running": {}}

    async def answer(request: Any) -> Any:
        if request.path.endswith("/log"):
            return await kubelet.answer(request)
        asked.append(request.path)
        kubelet.lines = lines
        return web.json_response(ended)

    async def main() -> None:
        async with client(answer) as api:
            said, _ = await fetched(Backend(api, Settings(), running), job(tmp_path / "here"))
            assert said[0].startswith("brought back by the log: model/leer")

    asyncio.run(main())
    assert asked[0] == "/api/v1/namespaces/team/pods/job-worker-0"


@pytest.mark.parametrize("gone", [False, True])
def test_the_bucket_has_the_files_also_of_a_pod_that_is_gone(
    keys: None, folder: Path, tmp_path: Path, gone: bool
) -> None:
    store, here = Store(), tmp_path / "here"

    async def main() -> None:
        async with serving(store.answer) as host:
            settings = Settings(output_store=f"{host}/data/team")
            upload = output_store.upload(settings, [WORKER], real=True)
            code, words = await wrote(folder, upload.addresses)
            none: Any = None
            pod = None if gone else by_store.pod(code, words, upload.token)
            backend = Backend(none, settings, pod, item({output_store.TOKEN: upload.token}))
            lines, _ = await fetched(backend, job(here))
            assert lines[0].startswith("brought back by the bucket: model/leer")
            store.objects.clear()
            (here / "model/net.bin").unlink()
            with pytest.raises(BackendError, match=r"^the files of worker-0 cannot be had: it was"):
                await fetched(backend, job(here))

    asyncio.run(main())
    assert (here / "model/zeros.bin").read_bytes() == (folder / "model/zeros.bin").read_bytes()


def ended_pod(*containers: str) -> dict[str, Any]:
    """A pod whose program has ended, with containers beside it that have ended too."""
    pod = by_log.pod()
    pod["spec"]["initContainers"] = [{"name": name} for name in containers]
    pod["status"]["initContainerStatuses"] = []
    return pod


@pytest.mark.parametrize(
    ("pod", "header", "words"),
    [
        (
            ended_pod(output_state.NAME),
            "%output=model/\n",
            "the files of worker-0 are lost: its program has ended, and nobody fetched them within "
            "60 s (the setting fetchWait).",
        ),
        (
            ended_pod(),
            "",
            "the files of worker-0 are lost: its program has ended, and the job has no %output.",
        ),
        (
            by_log.pod(),  # a value that was in its message
            "%output=loss\n",
            "the files of worker-0 are lost: its program has ended, and the job names no files in "
            "%output.",
        ),
        (None, "%output=model/\n", "the files of worker-0 cannot be had: it has no pod."),
    ],
)
def test_what_is_lost_is_said(
    tmp_path: Path, pod: dict[str, Any] | None, header: str, words: str
) -> None:
    none: Any = None
    backend = Backend(none, Settings(), pod, item({}))
    with pytest.raises(BackendError) as caught:
        asyncio.run(fetched(backend, job(tmp_path, header)))
    assert caught.value.message == words
    assert "by:s3" in caught.value.hint


def test_the_registry_may_still_have_files_of_a_pod_that_is_gone(tmp_path: Path) -> None:
    none: Any = None
    backend = Backend(none, Settings(), None, item({}))
    header = "%output=model/ by:registry\n%registry=host.example/team/cells:1\n"
    with pytest.raises(BackendError, match="it has no pod") as caught:
        asyncio.run(fetched(backend, job(tmp_path, header)))
    assert "still in host.example/team/cells/ciao-output:" in caught.value.hint
    assert "ciao-UID" in caught.value.hint
    with pytest.raises(BackendError, match="it has no pod") as caught:  # none is known here
        asyncio.run(fetched(backend, job(tmp_path, header.splitlines()[0])))
    assert "by:s3" in caught.value.hint


@pytest.mark.parametrize(
    ("queue", "status", "why"),
    [
        ("", {}, "job has not begun"),
        ("", {"conditions": [{"type": "Created", "status": "True"}]}, "job has not begun"),
        (
            "team",
            {"conditions": [{"type": "Suspended", "status": "True"}]},
            "job has not begun (waits in queue team)",
        ),
    ],
)
def test_files_of_a_job_that_has_not_begun_are_no_lost_ones(
    tmp_path: Path, queue: str, status: dict[str, Any], why: str
) -> None:
    none: Any = None
    waiting = item({output_claim.FOLDER: f"results/ciao-output/{'0' * 32}"}) | {"status": status}
    if queue:
        waiting["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": queue}
        waiting["spec"]["runPolicy"] = {"suspend": True}
    with pytest.raises(BackendError) as caught:
        asyncio.run(fetched(Backend(none, Settings(), None, waiting), job(tmp_path)))
    assert caught.value.message == f"there are no files of worker-0 yet: {why}."


@dataclass
class OnClaim:
    """A backend with the files of an ended pod on a claim."""

    folder: Path
    says: str = ""
    removed: int = 0
    closed: int = 0

    async def sent(self, job: Job, replica: Replica) -> SentFiles:
        async def remove() -> str:
            self.removed += 1
            return self.says

        async def close() -> None:
            self.closed += 1

        execute = Pod(self.folder).execute
        return SentFiles(OutputWay.CLAIM, 10**9, "one", {}, execute, remove, close)

    async def execute(self, *given: Any) -> int:
        raise AssertionError(given)


def test_what_a_stopped_cell_has_left_on_a_claim_is_removed_by_the_next_look(
    folder: Path, tmp_path: Path
) -> None:
    here = tmp_path / "here"
    left = OnClaim(folder, "the reader was deleted.")
    about = job(here)

    async def look() -> list[str]:
        said: list[Event] = []
        await fetching.fetch(
            left,  # type: ignore[arg-type]
            about,
            about.replicas,
            ["model/"],
            Settings(cluster_python=sys.executable),
            said.append,  # type: ignore[arg-type]
        )
        return [one.text for one in said if isinstance(one, Notice)]

    assert asyncio.run(look()) == ["the reader was deleted."]
    left.says = ""
    assert asyncio.run(look()) == []
    assert (left.removed, left.closed) == (2, 2)
    assert asyncio.run(look()) == []
    assert (left.removed, left.closed) == (2, 3)


@pytest.mark.parametrize(
    ("way", "listing"),
    [(OutputWay.EXEC, Listing()), (OutputWay.CLAIM, Listing(faults={"model/x": "it is damaged"}))],
)
def test_files_without_another_copy_are_never_removed(
    tmp_path: Path, way: OutputWay, listing: Listing
) -> None:
    returned = ReturnedFiles(tmp_path)
    returned.note(WORKER, Listing(), OutputWay.CLAIM, "one")
    assert returned.leaves_copy(WORKER, "one")
    assert not returned.leaves_copy(WORKER, "two")
    returned.note_removed(WORKER)
    assert not returned.leaves_copy(WORKER, "one")
    returned.note(WORKER, Listing(), OutputWay.CLAIM, "two")
    assert returned.leaves_copy(WORKER, "two")
    returned.note(WORKER, listing, way, "one")
    assert not returned.leaves_copy(WORKER, "one")


def test_what_came_earlier_is_named_if_nothing_can_be_had_any_more(
    folder: Path, tmp_path: Path
) -> None:
    kubelet, here = Kubelet(stamped(written(folder))), tmp_path / "here"

    async def main() -> None:
        async with client(kubelet.answer) as api:
            backend = Backend(api, Settings(), by_log.pod(), item({}))
            await fetched(backend, job(here))
            backend.pod = None
            lines, notices = await fetched(backend, job(here))
            assert lines[0].startswith("brought back by the log: model/leer")
            assert notices == [
                "the files of worker-0 cannot be had: it has no pod. What it gave earlier is here."
            ]

    asyncio.run(main())


def test_a_pod_that_runs_is_entered(tmp_path: Path) -> None:
    running = ended_pod()
    running["status"] = {
        "phase": "Running",
        "containerStatuses": [{"name": "tensorflow", "state": {"running": {}}}],
    }
    none: Any = None
    with pytest.raises(BackendError, match="no command in worker-0"):
        asyncio.run(fetched(Backend(none, Settings(), running), job(tmp_path)))
