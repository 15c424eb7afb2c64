"""Files of %output through a bucket: written by the real keeper, read by the kernel."""

from __future__ import annotations

import asyncio
import calendar
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest
from aiohttp import web

from ciao_kernel.backends.kubernetes.output import output_state, output_store
from ciao_kernel.backends.kubernetes.output.output_fetch import OutputFetch
from ciao_kernel.config import Settings
from ciao_kernel.delivery import replica_files
from ciao_kernel.delivery.object_store import download
from ciao_kernel.delivery.output import results
from ciao_kernel.delivery.output.returned_files import ReturnedFiles
from ciao_kernel.model import Job, Replica, ReplicaStatus, State, Status
from ciao_kernel.session import returned_values
from tests.helpers.output_fetch import notices_at_end
from tests.helpers.signals import wait_until_caught
from tests.integration.kube.test_output_log import folder
from tests.integration.kube.test_responses import serving

__all__ = ["folder"]
WORKER = Replica("worker", 0)


@dataclass
class Store:
    """A bucket: takes what is written at a signed address, and gives it back."""

    objects: dict[str, bytes] = field(default_factory=dict)
    asked: list[tuple[str, str]] = field(default_factory=list)
    refusals: list[int] = field(default_factory=list)
    cuts: list[int] = field(default_factory=list)
    at_cut: Callable[[Store], object] = lambda _: None

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Check what can be checked without the keys, and that one address is for one verb."""
        query = {name: one[0] for name, one in parse_qs(request.query_string).items()}
        assert re.fullmatch("[0-9a-f]{64}", query["X-Amz-Signature"])
        began = time.strptime(query["X-Amz-Date"], "%Y%m%dT%H%M%SZ")
        assert abs(calendar.timegm(began) - time.time()) < 3600
        self.asked.append((request.method, request.headers.get("Range", "")))
        if self.refusals:
            return web.Response(status=self.refusals.pop(0), text="<Error>secret</Error>")
        if request.method == "PUT":
            assert request.headers["Content-Length"]
            self.objects[request.path] = await request.read()
            return web.Response()
        if request.path not in self.objects:
            return web.Response(status=404)
        data = self.objects[request.path]
        begin = int(request.headers.get("Range", "bytes=0-")[6:-1])
        etag = f'"{hashlib.md5(data).hexdigest()}"'
        if request.headers.get("If-Match", etag) != etag:
            return web.Response(status=412)
        response = web.StreamResponse(status=206 if begin else 200, headers={"ETag": etag})
        response.content_length = len(data) - begin
        await response.prepare(request)
        if self.cuts:
            await response.write(data[begin : begin + self.cuts.pop(0)])
            assert request.transport
            request.transport.close()
            self.at_cut(self)
            return response
        await response.write(data[begin:])
        return response


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hush")


async def wrote(folder: Path, addresses: str, *, stopped: bool = False) -> tuple[int, str]:
    """Let the sidecar send the files at the program's end; return its exit code and its words."""
    marks = folder.parent / "marks"
    marks.mkdir()
    (marks / replica_files.REPLICA).write_text("worker-0")
    if stopped:
        (marks / replica_files.STOPPED).touch()
    keeper = folder / ".ciao" / results.KEEPER
    words = ["send", str(marks), "30", "0", "0", "1000000000", "model/", "absent.txt"]
    command = [sys.executable, "-I", "-S", str(keeper), *words]
    env = {**os.environ, output_store.ADDRESSES: addresses, replica_files.POD_UID: "one"}

    def work() -> tuple[int, str]:
        with subprocess.Popen(
            command, cwd=folder, env=env, stderr=subprocess.PIPE, text=True
        ) as process:
            wait_until_caught(process.pid, signal.SIGTERM)
            process.send_signal(signal.SIGTERM)
            _, err = process.communicate()
            return process.returncode, err

    return await asyncio.to_thread(work)


def pod(code: int, message: str, token: str) -> dict[str, Any]:
    def ended(name: str, **more: Any) -> dict[str, Any]:
        return {"name": name, "state": {"terminated": {"exitCode": 0, **more}}}

    sidecar = ended(output_state.STORE_NAME, exitCode=code, message=message)
    return {
        "metadata": {
            "name": "job-worker-0",
            "uid": "one",
            "annotations": {output_store.TOKEN: token},
        },
        "spec": {"containers": [{"name": "tensorflow"}], "restartPolicy": "Never"},
        "status": {
            "phase": "Succeeded",
            "containerStatuses": [ended("tensorflow")],
            "initContainerStatuses": [sidecar],
        },
    }


def bring(
    store: Store,
    folder: Path,
    here: Path,
    *,
    stopped: bool = False,
    change: Callable[[Store], object] = lambda _: None,
    token: str = "",
    gone: bool = False,
) -> list[str]:
    """Run the way of a job's files from its pod to this machine, and return what is said."""
    job = Job(
        "job", "kubernetes", "tensorflow", (WORKER,), 1.0, place="team",
        kind_of_place="namespace", header="%output=model/ absent.txt\n", folder=str(here),
    )  # fmt: skip
    said: list[str] = []

    async def main() -> None:
        async with serving(store.answer) as host:
            settings = Settings(output_store=f"{host}/data/team")
            upload = output_store.upload(settings, [WORKER], real=True)
            assert "hush" not in upload.addresses
            code, words = await wrote(folder, upload.addresses, stopped=stopped)
            assert not set(json.loads(upload.addresses).values()) & set(words.split())
            change(store)
            woken = asyncio.Event()
            none: Any = None
            fetch = OutputFetch(none, job, here, settings, woken.set)
            now = Status(State.SUCCEEDED, (ReplicaStatus(WORKER, State.SUCCEEDED),))
            ended = pod(code, words, token or upload.token)
            (sidecar,) = ended["status"]["initContainerStatuses"]
            running = {**sidecar, "state": {"running": {}}}
            status = {**ended["status"], "initContainerStatuses": [running]}
            fetch.update({}, now, {WORKER: {**ended, "status": status}})
            assert fetch.fetching  # it waits for the sidecar's end
            fetch.update({}, now, {WORKER: None if gone else ended})
            said.extend(await notices_at_end(fetch, woken, 120))

    asyncio.run(main())
    return [*said, *returned_values.of_pods(job, ReturnedFiles(here))]


def same(folder: Path, here: Path) -> bool:
    names = ("model/net.bin", "model/zeros.bin", "model/leer")
    return all((folder / one).read_bytes() == (here / one).read_bytes() for one in names)


def test_files_come_through_the_bucket(keys: None, folder: Path, tmp_path: Path) -> None:
    store = Store()
    said = bring(store, folder, tmp_path / "here")
    assert same(folder, tmp_path / "here")
    assert said[0].startswith("brought back by the bucket: model/leer (0 bytes, worker-0)")
    assert said[1:] == ["%output: no file matches absent.txt."]
    assert [verb for verb, _ in store.asked] == ["PUT", "GET"]
    (name,) = store.objects
    assert re.fullmatch("/data/team/ciao-[0-9a-f]{32}/worker-0", name)


def test_files_of_a_pod_that_is_gone_already_come(keys: None, folder: Path, tmp_path: Path) -> None:
    bring(Store(), folder, tmp_path / "here", gone=True)
    assert same(folder, tmp_path / "here")


def test_a_dry_run_shows_no_address_and_another_job_has_another_object(keys: None) -> None:
    settings = Settings(output_store="https://host/data")
    one = output_store.upload(settings, [WORKER], real=False)
    assert one.addresses == "(signed addresses)"
    assert one.token != output_store.upload(settings, [WORKER], real=True).token


def test_a_bucket_that_is_busy_is_asked_again(keys: None, folder: Path, tmp_path: Path) -> None:
    store = Store(refusals=[503, 500])
    bring(store, folder, tmp_path / "here", change=lambda store: store.refusals.append(503))
    assert [verb for verb, _ in store.asked] == ["PUT", "PUT", "PUT", "GET", "GET"]
    assert same(folder, tmp_path / "here")


def test_a_read_that_is_cut_goes_on(keys: None, folder: Path, tmp_path: Path) -> None:
    store = Store(cuts=[100_000, 150_000])
    bring(store, folder, tmp_path / "here")
    ranges = [one for verb, one in store.asked if verb == "GET"]
    assert ranges[0] == ""
    assert len(ranges) == 3
    assert same(folder, tmp_path / "here")


def test_a_read_that_goes_on_after_each_cut_is_not_given_up(
    keys: None, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(download, "_PAUSE", 0.0)
    store = Store(cuts=[30_000] * 9)
    bring(store, folder, tmp_path / "here")
    assert len([verb for verb, _ in store.asked if verb == "GET"]) == 10
    assert same(folder, tmp_path / "here")


def test_an_object_that_is_written_again_while_it_is_read_brings_no_mixed_file(
    keys: None, folder: Path, tmp_path: Path
) -> None:
    def again(store: Store) -> None:
        ((name, data),) = store.objects.items()
        store.objects[name] = data + b"more"

    said = bring(Store(cuts=[100_000], at_cut=again), folder, tmp_path / "here")
    assert "the object was written again while it was read." in said[0]


def test_a_bucket_that_refuses_is_said_without_the_address(
    keys: None, folder: Path, tmp_path: Path
) -> None:
    said = bring(Store(refusals=[403] * 6), folder, tmp_path / "here")
    assert said[0] == (
        "the files of worker-0 did not come back: the bucket refused the files: HTTP 403."
    )
    assert "X-Amz" not in "".join(said)


def test_a_stopped_program_sends_nothing(keys: None, folder: Path, tmp_path: Path) -> None:
    store = Store()
    said = bring(store, folder, tmp_path / "here", stopped=True)
    assert store.asked == []
    assert "it was stopped before its program had ended." in said[0]


def of_earlier_pod(store: Store) -> None:
    """Let the bucket have what another pod wrote: the pods of all tries have one address."""
    ((name, data),) = store.objects.items()
    first = replica_files.HEADER.pack(replica_files.POD, 3) + b"one"
    assert data.startswith(first)
    store.objects[name] = first[:-3] + b"two" + data.removeprefix(first)


@pytest.mark.parametrize("gone", [False, True])
def test_files_of_an_earlier_pod_are_not_taken_for_those_of_this_one(
    keys: None, folder: Path, tmp_path: Path, gone: bool
) -> None:
    said = bring(Store(), folder, tmp_path / "here", change=of_earlier_pod, gone=gone)
    assert said[0] == (
        "the files of worker-0 did not come back: it was stopped before it had written them, and "
        "the bucket has those of an earlier pod."
    )
    assert not (tmp_path / "here/model").exists()


def test_an_object_without_its_last_message_is_read_once(
    keys: None, folder: Path, tmp_path: Path
) -> None:
    def shorten(store: Store) -> None:
        ((name, data),) = store.objects.items()
        store.objects[name] = data.removesuffix(replica_files.HEADER.pack(replica_files.DONE, 0))

    store = Store()
    said = bring(store, folder, tmp_path / "here", change=shorten)
    assert said[0] == (
        "the other files of worker-0 did not come back: what was sent ended too early. 3 of 3 "
        "files are here."
    )
    assert [verb for verb, _ in store.asked] == ["PUT", "GET"]


@pytest.mark.parametrize("token", ["../other", "a" * 31, "A" * 32])
def test_a_token_that_leads_elsewhere_is_not_used(
    keys: None, folder: Path, tmp_path: Path, token: str
) -> None:
    store = Store()
    said = bring(store, folder, tmp_path / "here", token=token)
    assert "their bucket is not known here." in said[0]
    assert [verb for verb, _ in store.asked] == ["PUT"]


def test_a_changed_object_brings_no_file_that_is_not_whole(
    keys: None, folder: Path, tmp_path: Path
) -> None:
    def harm(store: Store) -> None:
        ((name, data),) = store.objects.items()
        other = bytes([data[-200_000] ^ 1])  # the content is random: any byte may be there already
        store.objects[name] = data[:-200_000] + other + data[-199_999:]

    said = bring(Store(), folder, tmp_path / "here", change=harm)
    assert "did not come back: model/net.bin arrived damaged." in said[0]
    assert not (tmp_path / "here/model/net.bin").exists()
    assert not list((tmp_path / "here").rglob("*.part"))
