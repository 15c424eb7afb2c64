"""What tests ask of a cluster's API, in this process: a kubectl costs 0.1 s of CPU each time.

Where the kubeconfig says what is not known here (`server.access`), kubectl does the same.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from tests.cluster.errors import ClusterError
from tests.cluster.kinds import Kind, asked
from tests.cluster.server import Refused, Server, access

Kubectl = Callable[..., str]
Object = dict[str, Any]

_LOG_SECONDS = 10


class Api:
    """The API by kubectl alone.

    Everywhere the namespace of what has none is "".

    Args:
        kubectl: runs it as an administrator and returns what it printed.
    """

    def __init__(self, kubectl: Kubectl) -> None:
        self._kubectl = kubectl

    def get(self, namespace: str, *what: str) -> Any:
        """Return what `kubectl get` finds, as values.

        Raises:
            ClusterError: with the server's words.
        """
        return json.loads(self._run(namespace, "get", *what, "-o", "json"))

    def create(self, namespace: str, manifest: Object, *, dry_run: bool = False) -> Object:
        """Create an object and return it, or only ask for that. Unknown fields are errors.

        Raises:
            ClusterError: with the server's words.
        """
        how = ("--dry-run=server",) if dry_run else ()
        text = json.dumps(manifest)
        made = self._run(namespace, "create", "-f", "-", "-o", "json", *how, text=text)
        return dict(json.loads(made))

    def patch(self, namespace: str, what: str, change: Object) -> None:
        """Merge a change into an object, such as `role/user`.

        Raises:
            ClusterError: with the server's words.
        """
        self._run(namespace, "patch", what, "--type=merge", "-p", json.dumps(change))

    def delete(self, namespace: str, what: str, *, now: bool = False) -> None:
        """Delete an object if it is there; does not wait for its end.

        Args:
            namespace: where.
            what: such as `pod/web`.
            now: without the time that a pod has to end.

        Raises:
            ClusterError: with the server's words.
        """
        force = ("--grace-period=0", "--force") if now else ()
        self._run(namespace, "delete", what, "--wait=false", "--ignore-not-found", *force)

    def token(self, namespace: str, account: str, secret: str) -> str:
        """Return a token of a service account for half a day, or until a Secret ends.

        Raises:
            ClusterError: with the server's words.
        """
        return self._run(
            namespace, "create", "token", account, "--duration=12h",
            "--bound-object-kind=Secret", f"--bound-object-name={secret}",
        ).strip()  # fmt: skip

    def log(self, pod: Object, lines: int) -> str:
        """Return the last lines of each container of a pod.

        Raises:
            ClusterError: with the server's words, such as that it did not start yet.
        """
        meta = pod["metadata"]
        return self._run(
            meta["namespace"], "logs", meta["name"], "--all-containers", f"--tail={lines}",
            f"--request-timeout={_LOG_SECONDS}s",
        )  # fmt: skip

    def _run(self, namespace: str, *arguments: str, text: str | None = None) -> str:
        where = ("-n", namespace) if namespace else ()
        return self._kubectl(*where, *arguments, text=text)


class InProcess(Api):
    """The API without kubectl, but for what `get` can be told only there.

    Args:
        kubectl: runs it as an administrator and returns what it printed.
        server: that of the same cluster.
    """

    def __init__(self, kubectl: Kubectl, server: Server) -> None:
        super().__init__(kubectl)
        self._server = server

    def get(self, namespace: str, *what: str) -> Any:
        """Return what `kubectl get` finds, as values."""
        question = asked(what)
        if question is None:
            return super().get(namespace, *what)
        kinds = [self._named(word) for word in question.words]
        if question.name:
            (kind,) = kinds
            return _shown(kind, self._ask("GET", kind.path(namespace, question.name)))
        items = [
            _shown(kind, item)
            for kind in kinds
            for item in self._ask("GET", kind.path(namespace), question.selectors)["items"]
        ]
        return {"apiVersion": "v1", "kind": "List", "items": items}

    def create(self, namespace: str, manifest: Object, *, dry_run: bool = False) -> Object:
        """Create an object and return it, or only ask for that. Unknown fields are errors."""
        kind = self._server.kinds().of(manifest) or self._server.kinds(fresh=True).of(manifest)
        if kind is None:
            raise ClusterError(
                f'no matches for kind "{manifest.get("kind")}" in version '
                f'"{manifest.get("apiVersion")}"'
            )
        meta = manifest.get("metadata", {})
        where = namespace or meta.get("namespace", "")
        # Only a name shows that a request that was sent twice did its work the first time.
        repeatable = "generateName" not in meta
        how = {"fieldValidation": "Strict", "fieldManager": "kubectl-create"}
        how |= {"dryRun": "All"} if dry_run else {}
        try:
            return self._ask("POST", kind.path(where), how, manifest, repeatable=repeatable)
        except Refused as refused:
            if refused.reason == "AlreadyExists" and refused.sent_twice:
                return self._ask("GET", kind.path(where, meta["name"]))
            raise

    def patch(self, namespace: str, what: str, change: Object) -> None:
        """Merge a change into an object, such as `role/user`."""
        self._ask(
            "PATCH", self._one(namespace, what), {"fieldManager": "kubectl-patch"}, change,
            content_type="application/merge-patch+json",
        )  # fmt: skip

    def delete(self, namespace: str, what: str, *, now: bool = False) -> None:
        """Delete an object if it is there; does not wait for its end."""
        how = {"propagationPolicy": "Background", **({"gracePeriodSeconds": "0"} if now else {})}
        path = self._one(namespace, what)
        try:
            self._ask("DELETE", path, how)
        except Refused as refused:
            if refused.reason != "NotFound":
                raise

    def token(self, namespace: str, account: str, secret: str) -> str:
        """Return a token of a service account for half a day, or until a Secret ends."""
        bound = {"apiVersion": "v1", "kind": "Secret", "name": secret}
        request = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": 43_200, "boundObjectRef": bound},
        }
        path = self._named("serviceaccounts").path(namespace, account, "token")
        return str(self._ask("POST", path, body=request)["status"]["token"])

    def log(self, pod: Object, lines: int) -> str:
        """Return the last lines of each container of a pod."""
        meta, spec = pod["metadata"], pod["spec"]
        path = self._named("pods").path(meta["namespace"], meta["name"], "log")
        text = []
        for container in (*spec.get("initContainers", ()), *spec["containers"]):
            query = {"container": container["name"], "tailLines": str(lines)}
            said = self._server.ask("GET", path, query, accept="*/*", seconds=_LOG_SECONDS)
            text.append(said.decode(errors="replace"))
        return "".join(text)

    def _named(self, word: str) -> Kind:
        """Return a kind by a word for it; one that came after the first question is asked for."""
        found = self._server.kinds().named(word) or self._server.kinds(fresh=True).named(word)
        if found is None:
            raise ClusterError(f'the server doesn\'t have a resource type "{word}"')
        return found

    def _one(self, namespace: str, what: str) -> str:
        word, sign, name = what.partition("/")
        if not (sign and name):
            raise ValueError(f"{what!r} is not KIND/NAME")
        return self._named(word).path(namespace, name)

    def _ask(self, *arguments: Any, **named: Any) -> Object:
        return dict(json.loads(self._server.ask(*arguments, **named)))


def _shown(kind: Kind, item: Object) -> Object:
    """Return an object as kubectl shows it: with its kind, which lists leave out, and less."""
    item.get("metadata", {}).pop("managedFields", None)
    return {"apiVersion": kind.api_version, "kind": kind.name, **item}


def api_of(kubeconfig: Path, kubectl: Kubectl) -> Api:
    """Return the API of a cluster.

    Args:
        kubeconfig: the administrator's. It is read each time: a cluster that is raised anew has
            other certificates.
        kubectl: runs it as that administrator and returns what it printed.
    """
    try:
        text = kubeconfig.read_text()
    except OSError:  # kubectl has the words for that
        return Api(kubectl)
    server = _server(text, os.getpid())
    return InProcess(kubectl, server) if server else Api(kubectl)


@cache
def _server(kubeconfig: str, process: int) -> Server | None:
    """Return the server of a kubeconfig: one a process, which a child's is not its parent's."""
    found = access(kubeconfig)
    return Server(found) if found else None
