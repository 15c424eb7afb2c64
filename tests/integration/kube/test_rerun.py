"""`ciao rerun` on a cluster of the loopback: the objects are those of the job but for its name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ciao_kernel.backends.kubernetes.backend import KubernetesBackend
from ciao_kernel.config import Settings
from ciao_kernel.session.session import Session
from tests.helpers.api_pods import hello
from tests.helpers.api_server import ApiServer
from tests.helpers.api_user import Here
from tests.helpers.jobs import Recorder

CELL = """\
%framework=tensorflow
%name=mine
%ps=1
%worker=2;%memory=1Gi
%envvar=TOKEN=secret
%checkpoint=runs
%grace=30s
%retries=1
%labels=team=vision
print()
"""


def general(item: Any, name: str) -> Any:
    """An object without its name, times and numbers, as text."""
    meta = item["metadata"]
    for key in ("uid", "resourceVersion", "creationTimestamp", "ownerReferences"):
        meta.pop(key, None)
    meta["annotations"].pop("ciao-kernel/run")
    assert json.loads(meta["annotations"].pop("ciao-kernel/submitted")) == item["spec"]
    item.pop("status", None)
    text = json.dumps(item, sort_keys=True)
    assert '"subPath": "mine"' in text
    text = text.replace('"subPath": "mine"', '"subPath": "<checkpoint>"')
    return text.replace(f'"{name}-', '"<job>-').replace(f'"{name}"', '"<job>"')


def test_the_objects_of_a_rerun_are_those_of_the_job_but_for_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(session: Session, _: KubernetesBackend) -> str:
        await session.run(CELL, Recorder(), tmp_path)
        session.settings = session.settings.with_values({"checkpoint": "others"}, "test")
        result = await session.rerun("mine", Recorder())
        return result.name

    with ApiServer(tmp_path, hello) as server:
        monkeypatch.setenv("KUBECONFIG", str(server.kubeconfig))
        here = Here(server, tmp_path)
        assert isinstance(here.settings, Settings)
        claim = {"metadata": {"name": "runs"}, "spec": {"accessModes": ["ReadWriteMany"]}}
        server.call(lambda: server.store.create("persistentvolumeclaims", claim, "team"))
        name = here.do(work)
        assert name == "mine-2"
        jobs = [
            server.call(lambda one=one: server.store.get("tfjobs", one)) for one in ("mine", name)
        ]
        maps = [one.removeprefix("configmaps/") for one in server.left() if "configmaps/" in one]
    first, second = (general(item, item["metadata"]["name"]) for item in jobs)
    assert first == second
    assert len(maps) == 2
