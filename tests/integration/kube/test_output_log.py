"""Files of %output in the log of a sidecar: written by the real keeper, read from an API server."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from ciao_kernel.backends.kubernetes.output import output_sidecar, output_state
from ciao_kernel.backends.kubernetes.output.output_fetch import OutputFetch
from ciao_kernel.config import Settings
from ciao_kernel.delivery import replica_files
from ciao_kernel.delivery.output import results, values_message
from ciao_kernel.delivery.output.result_writer import MARK
from ciao_kernel.delivery.output.returned_files import ReturnedFiles
from ciao_kernel.model import (
    Job,
    JobSpec,
    Replica,
    ReplicaStatus,
    Source,
    SourceFile,
    State,
    Status,
)
from ciao_kernel.model.outputs import OutputWay
from ciao_kernel.session import returned_values
from tests.helpers.output_fetch import notices_at_end
from tests.helpers.pod_log import stamp
from tests.helpers.rights import ordinary_reader
from tests.helpers.signals import wait_until_caught
from tests.integration.kube.test_responses import client

WORKER = Replica("worker", 0)
SECOND = 1_000_000_000
BEGAN = 1_767_225_600 * SECOND


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of a program that has written files, with the keeper as it is delivered."""
    place = tmp_path / "pod"
    (place / "model").mkdir(parents=True)
    (place / "model/net.bin").write_bytes(os.urandom(300_000))
    (place / "model/zeros.bin").write_bytes(bytes(100_000))
    (place / "model/leer").touch()
    source = Source(SourceFile("program.py", b""))
    for file in results.with_files(source, JobSpec("python", outputs=("model/",))).own:
        (place / file.path).parent.mkdir(exist_ok=True)
        (place / file.path).write_bytes(file.data or b"")
    return place


def written(
    folder: Path,
    limit: int = replica_files.LOG_MOST,
    *more: str,
    stopped: bool = False,
    paths: tuple[str, ...] = ("model/", "absent.txt"),
) -> bytes:
    """What the sidecar writes at the program's end; with more words than usual."""
    marks = folder.parent / "marks"
    marks.mkdir()
    if stopped:
        (marks / replica_files.STOPPED).touch()
    keeper = folder / ".ciao" / results.KEEPER
    words = ["tell", str(marks), "30", "0", str(limit), *paths, *more]
    command = [*ordinary_reader(), sys.executable, "-I", "-S", str(keeper), *words]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE) as process:
        wait_until_caught(process.pid, signal.SIGTERM)
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate()
        assert process.returncode == 0
    return out


def stamped(lines: bytes) -> list[bytes]:
    """Lines of a log as a kubelet serves them."""
    return [
        stamp(BEGAN + number) + line for number, line in enumerate(lines.splitlines(keepends=True))
    ]


def pod(phase: str = "Succeeded", message: str = "") -> dict[str, Any]:
    def ended(name: str) -> dict[str, Any]:
        end = {"exitCode": 0, "containerID": f"containerd://{name}", "message": message}
        return {"name": name, "containerID": f"containerd://{name}", "state": {"terminated": end}}

    return {
        "metadata": {"name": "job-worker-0", "uid": "one"},
        "spec": {"containers": [{"name": "tensorflow"}], "restartPolicy": "Never"},
        "status": {
            "phase": phase,
            "containerStatuses": [ended("tensorflow")],
            "initContainerStatuses": [ended(output_state.LOG_NAME)],
        },
    }


class Kubelet:
    """Serves a log; the first answers may end early."""

    def __init__(self, lines: list[bytes], cuts: tuple[int, ...] = ()) -> None:
        self.lines, self.cuts = lines, list(cuts)
        self.asked: list[dict[str, str]] = []

    async def answer(self, request: web.Request) -> web.StreamResponse:
        assert request.path.endswith("/pods/job-worker-0/log")
        self.asked.append(dict(request.query))
        response = web.StreamResponse()
        await response.prepare(request)
        data = b"".join(self.lines)
        if self.cuts:
            await response.write(data[: self.cuts.pop(0)])
            assert request.transport
            request.transport.close()
            return response
        await response.write(data)
        return response


def bring(
    kubelet: Kubelet,
    here: Path,
    more: str = "",
    header: str = "%output=model/ absent.txt by:log\n",
    message: str = "",
    **settings: float,
) -> list[str]:
    """Follow a job whose only pod has ended, and return what is said; with more directives."""
    job = Job(
        "job",
        "kubernetes",
        "tensorflow",
        (WORKER,),
        1.0,
        place="team",
        kind_of_place="namespace",
        header=header + more,
        folder=str(here),
    )
    said: list[str] = []

    async def main() -> None:
        async with client(kubelet.answer) as api:
            woken = asyncio.Event()
            fetch = OutputFetch(api, job, here, Settings(**settings), woken.set)
            now = Status(State.SUCCEEDED, (ReplicaStatus(WORKER, State.SUCCEEDED),))
            fetch.update({}, now, {WORKER: pod(message=message)})
            said.extend(await notices_at_end(fetch, woken, 60))

    asyncio.run(main())
    return [*said, *returned_values.of_pods(job, ReturnedFiles(here))]


def test_files_come_by_the_log_of_the_sidecar(folder: Path, tmp_path: Path) -> None:
    kubelet = Kubelet(stamped(written(folder)))
    said = bring(kubelet, tmp_path / "here")
    for name in ("net.bin", "zeros.bin", "leer"):
        path = Path("model", name)
        assert (tmp_path / "here" / path).read_bytes() == (folder / path).read_bytes()
    assert said[0].startswith("brought back by the log: model/leer (0 bytes, worker-0), model/net")
    assert said[1:] == ["%output: no file matches absent.txt."]
    (asked,) = kubelet.asked
    assert asked["container"] == output_state.LOG_NAME
    assert max(map(len, kubelet.lines)) < 16_384


def test_a_log_that_is_cut_on_the_way_is_read_on(folder: Path, tmp_path: Path) -> None:
    kubelet = Kubelet(stamped(written(folder)), cuts=(200_000, 350_000))
    assert "brought back by the log" in bring(kubelet, tmp_path / "here")[0]
    assert len(kubelet.asked) == 3
    here = tmp_path / "here/model/net.bin"
    assert here.read_bytes() == (folder / "model/net.bin").read_bytes()


def test_a_later_follower_leaves_files_that_are_here_as_they_are(
    folder: Path, tmp_path: Path
) -> None:
    kubelet = Kubelet(stamped(written(folder)))
    bring(kubelet, tmp_path / "here")
    (tmp_path / "here/model/leer").write_text("changed by the user")
    assert "brought back by the log: model/leer" in bring(kubelet, tmp_path / "here")[0]
    assert (tmp_path / "here/model/leer").read_text() == "changed by the user"
    assert len(kubelet.asked) == 1
    (tmp_path / "here/model/net.bin").unlink()
    bring(kubelet, tmp_path / "here")
    assert (tmp_path / "here/model/net.bin").exists()
    assert len(kubelet.asked) == 2


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (lambda lines: lines[3:], "their log has lost lines."),
        (lambda lines: lines[:5] + lines[6:], "their log has lost lines."),
        (lambda lines: lines[:-1], "their log has only a part of them."),
        (lambda lines: [lines[0][:-9] + b"!\n", *lines[1:]], "a line of their log is damaged."),
        (lambda lines: [*lines[:-1], lines[0], lines[-1]], "their log has lost lines."),
    ],
)
def test_a_log_with_a_part_of_the_files_brings_none(
    folder: Path, tmp_path: Path, harm: Callable[[list[bytes]], list[bytes]], words: str
) -> None:
    kubelet = Kubelet(stamped(b"".join(harm(written(folder).splitlines(keepends=True)))))
    said = bring(kubelet, tmp_path / "here")
    assert said[0].startswith(f"the files of worker-0 did not come back: {words}")
    assert not (tmp_path / "here/model").exists()


def test_a_log_without_the_last_message_is_read_once(tmp_path: Path) -> None:
    listing = b'{"files": 0, "bytes": 0, "missing": [], "left_out": []}'
    stream = replica_files.HEADER.pack(replica_files.LIST, len(listing)) + listing
    end = f"{len(stream)} {hashlib.sha256(stream).hexdigest()}\n".encode()
    line = replica_files.LOG_LINE + base64.b64encode(stream) + b"\n"
    kubelet = Kubelet(stamped(line + replica_files.LOG_END + end))
    said = bring(kubelet, tmp_path / "here")
    assert said[0] == "the files of worker-0 did not come back: what was sent ended too early."
    assert len(kubelet.asked) == 1


def test_files_that_are_too_large_for_the_log_are_not_written_and_said(
    folder: Path, tmp_path: Path
) -> None:
    (folder / "model/more.bin").write_bytes(bytes(replica_files.LOG_MOST))
    lines = written(folder)
    assert len(lines) < 1000
    said = bring(Kubelet(stamped(lines)), tmp_path / "here")
    assert said[0].startswith(
        "the files of worker-0 did not come back: its files have 4.6 MB, and the log carries at "
        "most 4.2 MB. More needs the right to create and get pods/exec"
    )


def test_event_files_that_are_too_large_for_the_log_do_not_keep_the_others_back(
    folder: Path, tmp_path: Path
) -> None:
    (folder / "runs/train").mkdir(parents=True)
    (folder / "runs/train/events.out.tfevents.1").write_bytes(bytes(replica_files.LOG_MOST))
    lines = written(folder, replica_files.LOG_MOST, "runs/**/*tfevents*")
    said = bring(Kubelet(stamped(lines)), tmp_path / "here", "%tensorboard=runs\n")
    assert (tmp_path / "here/model/net.bin").exists()
    assert said[0].startswith("brought back by the log: model/leer")
    assert said[1:] == [
        "%output: no file matches absent.txt.",
        "%output: these did not come back: runs/train/events.out.tfevents.1 (worker-0: all files "
        "together are too large).",
    ]


def test_a_smaller_limit_of_the_user_is_named(folder: Path, tmp_path: Path) -> None:
    settings = Settings(fetch_limit=100_000.0)
    limit = output_sidecar.limit(settings, OutputWay.LOG)
    said = bring(Kubelet(stamped(written(folder, limit))), tmp_path / "here", fetch_limit=100_000.0)
    assert "its files have 400.0 kB, and fetchLimit is 100.0 kB." in said[0]


def test_so_many_files_that_their_names_fill_the_log_are_refused(
    folder: Path, tmp_path: Path
) -> None:
    for number in range(5000):
        (folder / f"model/{number}").touch()
    lines = written(folder)
    assert len(lines) < 1000
    said = bring(Kubelet(stamped(lines)), tmp_path / "here")
    assert "it has 5,003 files, too many for a log. Let the program pack them" in said[0]


def test_a_file_that_cannot_be_read_is_named_and_the_others_come(
    folder: Path, tmp_path: Path
) -> None:
    (folder / "model/leer").chmod(0)
    said = bring(Kubelet(stamped(written(folder))), tmp_path / "here")
    assert (tmp_path / "here/model/net.bin").exists()
    assert said[-1] == (
        "%output: these did not come back: model/leer (worker-0: Permission denied)."
    )


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (b"", "it was stopped before its program had ended."),
        (b"MemoryError\n", "MemoryError."),
    ],
)
def test_a_sidecar_that_writes_no_files_is_said(
    folder: Path, tmp_path: Path, words: bytes, why: str
) -> None:
    lines = written(folder, stopped=True)
    assert lines == b""
    said = bring(Kubelet(stamped(words)), tmp_path / "here")
    assert said[0] == f"the files of worker-0 did not come back: {why}"


@pytest.mark.parametrize("paths", [(), ("model/",)])
def test_a_value_that_is_a_file_comes_by_the_log(
    folder: Path, tmp_path: Path, paths: tuple[str, ...]
) -> None:
    here, data = tmp_path / "here", json.dumps("x" * 5000).encode()
    (folder / ".ciao-values").mkdir()
    (folder / ".ciao-values/text.json").write_bytes(data)
    digest = hashlib.sha256(data).hexdigest()[:16]
    entry = {"type": "builtins.str", "file": "text.json", "size": len(data), "digest": digest}
    message = MARK + json.dumps({"names": ["text"], "values": {"text": entry}})
    kubelet = Kubelet(stamped(written(folder, paths=(*paths, replica_files.VALUES))))
    header = f"%output={' '.join((*paths, 'text'))} by:log\n"
    said = bring(kubelet, here, header=header, message=message)
    assert values_message.unpack(message, results.folder(here, WORKER))
    assert results.Results(results.folder(here, WORKER))["text"] == "x" * 5000
    assert ".ciao-values" not in str(said)
    assert not (here / ".ciao-values").exists()
    assert (here / "model/net.bin").exists() is bool(paths)


def test_values_alone_write_nothing_if_none_is_a_file(folder: Path) -> None:
    assert written(folder, paths=(replica_files.VALUES,)) == b""
