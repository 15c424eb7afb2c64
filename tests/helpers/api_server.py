"""A cluster on the loopback: an API server, an operator and a node, as far as a job needs them.

It does what a real cluster cannot: a million lines in seconds, a thousand jobs in minutes, a clock
that is an hour ahead. What it answers was seen on a real one; the tests in ``tests/e2e`` are the
proof of the rest.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import ssl
import subprocess
import threading
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from email.utils import formatdate
from pathlib import Path
from typing import TypeVar

from aiohttp import web

from tests.cluster.layout import Layout
from tests.helpers import api_metrics, api_queue
from tests.helpers.api_metrics import Metrics
from tests.helpers.api_pods import (
    INDEXED_JOB,
    JOB,
    Pod,
    Program,
    hello,
    pods_of,
    pods_of_indexed,
)
from tests.helpers.api_store import Object, Refusal, Store

NAMESPACE = "team"
_WAIT = 30
_KINDS = ("tfjobs", "pytorchjobs", "jobs", "pods")
T = TypeVar("T")
Execute = Callable[[str, web.WebSocketResponse], Awaitable[None]]
"""Talks over the connection with a command in a pod, whose name comes first."""


@dataclass(frozen=True)
class Loopback(Layout):
    """Where it is, for `tests.cluster.faults.proxy.Proxy`."""

    @property
    def address(self) -> str:
        return "127.0.0.1"


class ApiServer:
    """The cluster, in a thread of its own. Used as a context manager.

    Args:
        folder: For its kubeconfig and certificate.
        program: What runs in each pod.
        skew: Seconds by which the clocks of the cluster are ahead of this machine's.
        operator: Whether the training operator is installed.
        trainer: Whether Kubeflow Trainer is said to be installed; its jobs do not run here.
    """

    def __init__(
        self,
        folder: Path,
        program: Program = hello,
        skew: float = 0.0,
        *,
        operator: bool = True,
        trainer: bool = False,
    ) -> None:
        self.at = Loopback("loopback", 0, folder)
        self.program, self.skew, self.operator = program, skew, operator
        self.trainer = trainer
        self.store = Store(self.now)
        self.pods: dict[str, Pod] = {}
        self.forbidden = frozenset[str]()
        """Kinds that the user may not use, as written in paths."""
        self.metrics: Metrics | None = None
        """What metrics.k8s.io tells of pods; None: the cluster has no metrics server."""
        self.queue: api_queue.Queue | None = None
        """The queue of Kueue; None: the cluster has no Kueue."""
        self.execute: Execute | None = None
        """Talks for a command in a pod; None: none can be run."""
        self.away = False
        """Whether new requests get no answer; streams go on."""
        self.log_requests = 0
        self.reaction = 0.0
        """Seconds that the operator takes to judge a job."""
        self.port = 0
        self._running: dict[str, asyncio.Task[None]] = {}
        self._jobs: dict[str, asyncio.Task[None]] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="api", daemon=True)
        self._runner: web.AppRunner | None = None

    @property
    def kubeconfig(self) -> Path:
        """Of a user who may do everything."""
        return self.at.kubeconfig

    def clock(self) -> float:
        """The time in the cluster, in seconds since the epoch."""
        return time.time() + self.skew

    def now(self) -> str:
        """The time in the cluster, as it stands in objects."""
        return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self.clock()))

    def call(self, work: Callable[[], T]) -> T:
        """Do something in the server's thread."""

        async def done() -> T:
            return work()

        return asyncio.run_coroutine_threadsafe(done(), self._loop).result(_WAIT)

    def admit(self, name: str) -> None:
        """Let a TFJob run that waits in the queue."""
        over = {"type": "Suspended", "status": "False", "lastTransitionTime": self.now()}
        change = {"spec": {"runPolicy": {"suspend": False}}, "status": {"conditions": [over]}}
        self.call(lambda: self.store.merge("tfjobs", name, change))

    def left(self) -> list[str]:
        """Return what exists in the namespace: ``pods/a``."""
        return self.call(self.store.names)

    def lose(self, pod: str) -> None:
        """Remove a pod at once, as a deletion by force does; nobody sees its end."""

        def gone() -> None:
            self.store.delete("pods", pod)
            self._running[pod].cancel()

        self.call(gone)

    def end_container(self, pod: str) -> None:
        """Let the container of a pod fail. Its program goes on, for the next container."""
        self.call(lambda: self._end_container(pod))

    def start_container(self, pod: str) -> None:
        """Start the container of a pod again that has failed, as a kubelet does."""
        self.call(lambda: self._start_container(pod))

    def evict(self, pod: str) -> None:
        """Do what a POST to a pod's ``eviction`` does."""
        self.call(lambda: self._evict(pod))

    def __enter__(self) -> ApiServer:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._start(), self._loop).result(_WAIT)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(_WAIT)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_WAIT)
        self._loop.close()

    # -------------------------------------------------------------------------- the server

    async def _start(self) -> None:
        cert, key = _certificate(self.at.folder)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(cert, key)
        app = web.Application(client_max_size=1 << 24)
        app.router.add_route("*", "/{path:.*}", self._answer)
        app.on_response_prepare.append(self._dated)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1, access_log=None)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=context).start()
        self.port = self._runner.addresses[0][1]
        authority = base64.b64encode(cert.read_bytes()).decode()
        server = {
            "server": f"https://127.0.0.1:{self.port}",
            "certificate-authority-data": authority,
        }
        known = {"cluster": "c", "namespace": NAMESPACE, "user": "u"}
        config = {
            "clusters": [{"name": "c", "cluster": server}],
            "users": [{"name": "u", "user": {"token": "t"}}],
            "contexts": [{"name": "c", "context": known}],
            "current-context": "c",
        }
        self.kubeconfig.write_text(json.dumps(config))

    async def _stop(self) -> None:
        running = [*self._running.values(), *self._jobs.values()]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        assert self._runner is not None
        await self._runner.cleanup()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _dated(self, _: web.Request, answer: web.StreamResponse) -> None:
        answer.headers["Date"] = formatdate(self.clock(), usegmt=True)

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        if self.away and request.transport:
            request.transport.abort()
            return web.Response()
        parts = [*request.path.strip("/").split("/"), ""]
        try:
            if parts[1] == api_metrics.GROUP:
                return web.json_response(self._measured(request))
            if self.queue and parts[1] in (api_queue.GROUP, api_queue.PLACES):
                return web.json_response(self.queue.answer(request.path))
            if "namespaces" not in parts:
                return web.json_response(await self._about(request))
            parts = parts[parts.index("namespaces") + 2 : -1]
            if not parts:
                meta = {"name": NAMESPACE, "uid": "n", "labels": {}}
                return web.json_response({"kind": "Namespace", "metadata": meta})
            return await self._namespaced(request, *parts)
        except Refusal as refusal:
            return web.json_response(refusal.status, status=refusal.code)

    async def _about(self, request: web.Request) -> Object:
        if request.path == "/version":
            return {"major": "1", "minor": "31"}
        if request.path == "/apis/kubeflow.org/v1" and self.operator:
            return {"resources": [{"name": "tfjobs"}, {"name": "pytorchjobs"}]}
        if request.path == "/apis/trainer.kubeflow.org/v1alpha1" and self.trainer:
            return {"resources": [{"name": "trainjobs"}]}
        if request.path == "/apis/batch/v1":
            return {"resources": [{"name": "jobs"}, {"name": "jobs/status"}]}
        if request.method == "POST":  # a review of rights
            every = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}
            return {"status": {"allowed": True, "resourceRules": [every], "incomplete": False}}
        kind = request.path.rpartition("/")[2]
        if kind in self.forbidden:
            raise Refusal(403, "Forbidden", f"{kind} is forbidden")
        if kind in _KINDS:  # of all namespaces
            return self.store.list(kind, request.query)
        raise Refusal(404, "NotFound", request.path)

    async def _namespaced(
        self, request: web.Request, kind: str, name: str = "", sub: str = ""
    ) -> web.StreamResponse:
        if kind in self.forbidden:
            raise Refusal(403, "Forbidden", f"{kind} is forbidden")
        if sub == "log":
            return await self._log(request, name)
        if sub == "exec":
            return await self._exec(request, name)
        if request.method == "POST":
            return web.json_response(self._create(kind, await request.json(), request), status=201)
        if request.method == "PATCH":  # a merge patch; a uid in it is a precondition
            change = json.loads(await request.read())
            if change["metadata"].get("uid") != self.store.get(kind, name)["metadata"]["uid"]:
                raise Refusal(409, "Conflict", "the UID in the precondition does not match")
            return web.json_response(self.store.merge(kind, name, change))
        if request.method == "DELETE":
            body = await request.json() if request.can_read_body else {}
            found = self.store.get(kind, name)
            wanted = (body.get("preconditions") or {}).get("uid")
            if wanted and wanted != found["metadata"]["uid"]:
                raise Refusal(409, "Conflict", "the UID in the precondition does not match")
            self._delete(kind, found)
            return web.json_response(found)
        if name:
            return web.json_response(self.store.get(kind, name))
        if request.query.get("watch"):
            return await self._watch(request, kind)
        return web.json_response(self.store.list(kind, request.query))

    async def _watch(self, request: web.Request, kind: str) -> web.StreamResponse:
        answer = web.StreamResponse()
        await answer.prepare(request)
        with contextlib.suppress(ConnectionError):
            async for event in self.store.watch(kind, request.query):
                await answer.write(json.dumps(event).encode() + b"\n")
        return answer

    async def _log(self, request: web.Request, name: str) -> web.StreamResponse:
        self.log_requests += 1
        self.store.get("pods", name)
        if (pod := self.pods.get(name)) is None:
            raise Refusal(400, "BadRequest", "the container is waiting to start")
        query = request.query
        log = pod.previous if query.get("previous") == "true" else pod.log
        if log is None:
            raise Refusal(400, "BadRequest", "previous terminated container not found")
        answer = web.StreamResponse()
        await answer.prepare(request)
        limit = int(query.get("limitBytes", "0"))
        tail = int(query["tailLines"]) if "tailLines" in query else None
        follows = query.get("follow") == "true"
        found = log.answer(query.get("sinceTime", ""), follow=follows, tail=tail)
        with contextlib.suppress(ConnectionError):
            async for piece in found:
                await answer.write(piece[:limit] if limit else piece)
                if limit:
                    break
        return answer

    async def _exec(self, request: web.Request, name: str) -> web.StreamResponse:
        self.store.get("pods", name)
        if self.execute is None:
            raise Refusal(500, "InternalError", "no command can be run")
        channel = web.WebSocketResponse(protocols=("v5.channel.k8s.io",))
        await channel.prepare(request)
        with contextlib.suppress(ConnectionError):
            await self.execute(name, channel)
            await channel.close()
        return channel

    def _measured(self, request: web.Request) -> Object:
        if self.metrics is None:
            raise Refusal(404, "NotFound", "the server could not find the requested resource")
        if f"pods.{api_metrics.GROUP}" in self.forbidden:
            raise Refusal(403, "Forbidden", f"pods.{api_metrics.GROUP} is forbidden")
        pods = self.store.list("pods", request.query)["items"]
        return api_metrics.listed(pods, self.metrics, self.now())

    def _create(self, kind: str, item: Object, request: web.Request) -> Object:
        if request.query.get("dryRun"):
            return {**item, "metadata": {**item["metadata"], "uid": "dry"}}
        if self.queue and self.queue.takes(item):
            item["spec"].setdefault("runPolicy", {})["suspend"] = True
        made = self.store.create(kind, item, NAMESPACE)
        if "Specs" in "".join(made.get("spec", {})):
            name = made["metadata"]["name"]
            self._jobs[name] = self._loop.create_task(self._operate(kind, made))
        elif kind == "jobs":
            name = made["metadata"]["name"]
            self._jobs[name] = self._loop.create_task(self._control(made))
        return made

    def _delete(self, kind: str, item: Object) -> None:
        """Delete an object, and what it owns; a pod gets SIGTERM first."""
        name, uid = item["metadata"]["name"], item["metadata"]["uid"]
        if kind == "pods" and (task := self._running.get(name)):
            self.store.merge(kind, name, {"metadata": {"deletionTimestamp": self.now()}})
            task.cancel()
            return
        if task := self._jobs.pop(name, None):
            task.cancel()
        self.store.delete(kind, name)
        for other, owned in self.store.owned(uid):
            self._delete(other, owned)

    def _evict(self, name: str) -> None:
        why = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "EvictionByEvictionAPI",
            "message": "Eviction API: evicting",
            "lastTransitionTime": self.now(),
        }
        self.store.merge("pods", name, {"status": {"conditions": [why]}})
        self._delete("pods", self.store.get("pods", name))

    # ------------------------------------------------------------- the operator and the node

    async def _operate(self, kind: str, job: Object) -> None:
        """Create a job's pods, and judge it by their ends; any pod that fails ends the job."""
        name, uid = job["metadata"]["name"], job["metadata"]["uid"]
        self._condition(kind, name, "Created")
        if job["spec"].get("runPolicy", {}).get("suspend"):
            await self._admitted(kind, name)
        made = [pod for pod in pods_of(job) if self.store.create("pods", pod, NAMESPACE)]
        await asyncio.sleep(0)
        for pod in made:
            pod_name = pod["metadata"]["name"]
            self.pods[pod_name] = Pod(pod, self.clock)
            self._running[pod_name] = self._loop.create_task(self._run(pod_name))
        self._condition(kind, name, "Running")
        selector = {"labelSelector": f"{JOB}={name}"}
        async for _ in self.store.watch("pods", selector):
            found = [pod for _, pod in self.store.owned(uid) if pod["kind"] == "Pod"]
            phases = [pod["status"].get("phase") for pod in found]
            if len(found) < len(made) or "Failed" in phases:
                await asyncio.sleep(self.reaction)
                why = f"{name} has failed because 1 Worker replica(s) failed."
                self._condition(kind, name, "Failed", why)
                break
            if set(phases) == {"Succeeded"}:
                self._condition(kind, name, "Succeeded")
                break
        for other, pod in self.store.owned(uid):  # cleanPodPolicy: Running
            if pod["kind"] == "Pod" and pod["status"].get("phase") == "Running":
                self._delete(other, pod)

    async def _admitted(self, kind: str, name: str) -> None:
        """Wait until a suspended job is resumed."""
        self._condition(kind, name, "Suspended")
        async for event in self.store.watch(kind, {"fieldSelector": f"metadata.name={name}"}):
            if not event["object"]["spec"]["runPolicy"]["suspend"]:
                break

    async def _control(self, job: Object) -> None:
        """Do what the Job controller does for an Indexed Job without restarts."""
        name, uid = job["metadata"]["name"], job["metadata"]["uid"]
        (rule,) = job["spec"]["successPolicy"]["rules"]
        parts = [part.partition("-") for part in rule["succeededIndexes"].split(",")]
        ranges = [range(int(first), int(last or first) + 1) for first, _, last in parts]
        deciding = [index for one in ranges for index in one]
        self.store.merge("jobs", name, {"status": {"startTime": self.now()}})
        made = [self.store.create("pods", pod, NAMESPACE) for pod in pods_of_indexed(job)]
        names = [pod["metadata"]["name"] for pod in made]
        for pod_name, pod in zip(names, made, strict=True):
            self.pods[pod_name] = Pod(pod, self.clock)
            self._running[pod_name] = self._loop.create_task(self._run(pod_name))
        outcome = ("FailureTarget", "Failed")
        async for _ in self.store.watch("pods", {"labelSelector": f"{INDEXED_JOB}={name}"}):
            found = {pod["metadata"]["name"]: pod for _, pod in self.store.owned(uid)}
            phases = [found.get(one, {}).get("status", {}).get("phase") for one in names]
            if None in phases or "Failed" in phases:
                break
            if all(phases[index] == "Succeeded" for index in deciding):
                outcome = ("SuccessCriteriaMet", "Complete")
                break
        await asyncio.sleep(self.reaction)
        self._condition("jobs", name, outcome[0])
        running = [pod for _, pod in self.store.owned(uid) if pod["kind"] == "Pod"]
        for pod in running:
            if pod["status"].get("phase") in ("Pending", "Running"):
                self._delete("pods", pod)
        async for _ in self.store.watch("pods", {"labelSelector": f"{INDEXED_JOB}={name}"}):
            left = [pod for _, pod in self.store.owned(uid) if pod["kind"] == "Pod"]
            if all(pod["status"].get("phase") in ("Succeeded", "Failed") for pod in left):
                break
        self._condition("jobs", name, outcome[1])

    def _condition(self, kind: str, name: str, what: str, why: str = "") -> None:
        one = {"type": what, "status": "True", "lastTransitionTime": self.now()}
        one |= {"reason": f"Job{what}", "message": why or f"{name} is {what.lower()}."}
        self.store.merge(kind, name, {"status": {"conditions": [one]}})

    async def _run(self, name: str) -> None:
        """Run a pod to its end; it stays unless it was deleted."""
        pod, spec = self.pods[name], self.store.get("pods", name)["spec"]
        try:
            pod.source = await self._mounted(spec)
            self._tell(pod, "Running", self._began())
            code = await self.program(pod)
        except asyncio.CancelledError:
            code = 143
        pod.log.end()
        with contextlib.suppress(Refusal):
            phase = "Failed" if code else "Succeeded"
            item = self._tell(pod, phase, self._ended(pod, code))
            del self._running[name]
            if item["metadata"].get("deletionTimestamp"):
                self._loop.call_later(0.2, self._forget, name, item["metadata"]["uid"])

    def _end_container(self, name: str) -> None:
        pod = self.pods[name]
        pod.log.end()
        self.store.merge("pods", name, {"spec": {"restartPolicy": "OnFailure"}})
        self._tell(pod, "Running", self._ended(pod, 1))

    def _start_container(self, name: str) -> None:
        pod = self.pods[name]
        last = self._ended(pod, 1)
        pod.begin_anew()
        self._tell(pod, "Running", self._began(), last)

    def _began(self) -> Object:
        return {"running": {"startedAt": self.now()}}

    def _ended(self, pod: Pod, code: int) -> Object:
        ended = {"exitCode": code, "finishedAt": self.now(), "containerID": pod.container}
        return {"terminated": {**ended, "reason": "Error" if code else "Completed"}}

    def _tell(self, pod: Pod, phase: str, state: Object, last: Object | None = None) -> Object:
        """Write the status of a pod and its container."""
        item = self.store.get("pods", pod.name)
        known = (item["status"].get("containerStatuses") or [{}])[0].get("lastState", {})
        one = {
            "name": str(item["spec"]["containers"][0]["name"]),
            "restartCount": pod.restarts,
            "containerID": pod.container,
            "state": state,
            "lastState": known if last is None else last,
        }
        status = {"phase": phase, "containerStatuses": [one]}
        change = {"spec": {"nodeName": "node"}, "status": status}
        return self.store.merge("pods", pod.name, change)

    async def _mounted(self, spec: Object) -> str:
        """Wait for the ConfigMaps that a pod mounts, and return their text."""
        volumes = spec.get("volumes", ())
        names = {one["configMap"]["name"] for one in volumes if "configMap" in one}
        while not names <= {name for kind, name in self.store.known() if kind == "configmaps"}:
            await asyncio.sleep(0.01)
        return "".join(json.dumps(self.store.get("configmaps", name)["data"]) for name in names)

    def _forget(self, name: str, uid: str) -> None:
        with contextlib.suppress(Refusal):
            if self.store.get("pods", name)["metadata"]["uid"] == uid:
                self.store.delete("pods", name)
                self.pods.pop(name, None)


def _certificate(folder: Path) -> tuple[Path, Path]:
    cert, key = folder / "server.crt", folder / "server.key"
    argv = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    argv += ["-nodes", "-days", "2", "-subj", "/CN=loopback", "-keyout", str(key)]
    argv += ["-out", str(cert), "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run(argv, check=True, capture_output=True)
    return cert, key
