"""Jobs of any language on a cluster: the image needs sh and the program, and no Python."""

from __future__ import annotations

import asyncio
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ciao_kernel.backends.kubernetes.apis import JOB
from ciao_kernel.backends.kubernetes.manifests import (
    job_objects,
    manifest,
    pod_template,
    replica_variables,
)
from ciao_kernel.backends.kubernetes.submission import choice
from ciao_kernel.builders.configmap import ConfigMapBuilder
from ciao_kernel.config import Settings
from ciao_kernel.errors import SpecError
from ciao_kernel.magics import parse
from ciao_kernel.model import ApiName, Artifact, Job, Owner, Source, SourceFile
from ciao_kernel.plugins import Build, Plan
from tests.unit.backends.kubernetes.manifests.test_manifest import REGISTRY, build, source

HEADER = "%framework=custom\n%worker=3\n%command=prog '$(HOME)' {cell}\n"
IMAGE = "%image=team/lua:5\n"


def plan_of(text: str, *files: SourceFile) -> Plan:
    parsed = parse.parse(text + "x\n", REGISTRY.table)
    framework = REGISTRY.framework("custom")
    spec = framework.complete(parsed.spec)
    source = Source(SourceFile("ciao_cell", b"x\n", size=2), files=files)
    return Plan(spec.name, spec, framework, source, Path("/"), "header\n", Owner("ada"))


def built(plan: Plan) -> Artifact:
    ask = Build(plan.source, plan.spec, "", "mine", Path("/nowhere"), Path("/nowhere"))
    return asyncio.run(ConfigMapBuilder(Settings()).build(ask, print))


def objects(text: str) -> job_objects.Objects:
    plan = plan_of(text)
    job = Job("mine", "kubernetes", "custom", plan.spec.replicas(), 1.0, "team", owner="ada")
    return manifest.objects(plan, job, built(plan), Settings(), "run-1", sleeps=True, api=JOB)


def told(made: job_objects.Objects) -> dict[str, str]:
    (found,) = (one["data"] for one in made.beside if "0.env" in one.get("data", {}))
    return dict(found)


def test_a_shell_takes_the_variables_and_becomes_the_program() -> None:
    made = objects(HEADER + IMAGE)
    (container,) = made.job["spec"]["template"]["spec"]["containers"]
    shell, option, script, *words = container["command"]
    assert (shell, option) == ("sh", "-c")
    assert script.startswith('. "/ciao-replicas/$$JOB_COMPLETION_INDEX.env" ||')
    assert script.endswith('exec "$$@"')
    assert words == ["sh", "prog", "$$(HOME)", "/ciao/ciao_cell"]
    assert container["image"] == "team/lua:5"
    assert {"name": "CIAO_CELL", "value": "/ciao/ciao_cell"} in container["env"]
    assert {"name": "replicas", "mountPath": "/ciao-replicas", "readOnly": True} in container[
        "volumeMounts"
    ]


def test_each_index_has_a_file_of_its_own() -> None:
    found = told(objects(HEADER + IMAGE))
    assert sorted(found) == ["0.env", "1.env", "2.env"]
    lines = dict(one.removeprefix("export ").split("=") for one in found["2.env"].splitlines())
    kept = {
        one.split("=")[0] for one in found["2.env"].splitlines() if not one.startswith("export")
    }
    assert kept == {"ciao_first", "ciao_left"}, "the program must not get them"
    assert (lines["ciao_first"], lines["ciao_left"]) == ("mine-0.mine", "60")
    assert (lines["RANK"], lines["WORLD_SIZE"], lines["CIAO_INDEX"]) == ("2", "3", "2")
    assert shlex.split(lines["MASTER_ADDR"]) == ["mine-0.mine"]
    assert shlex.split(lines["CIAO_HOSTS"])[0].count(":") == 3


def test_a_single_replica_waits_for_no_name() -> None:
    found = told(objects(HEADER.replace("=3", "=1") + IMAGE))
    assert "ciao_first" not in found["0.env"]


def test_the_users_variables_win() -> None:
    found = told(objects(HEADER + IMAGE + "%envvar=MASTER_PORT=1\n"))
    assert "MASTER_PORT" not in found["0.env"]


def test_files_are_unpacked_by_tar() -> None:
    plan = plan_of(HEADER + IMAGE, SourceFile("data.csv", b"1,2\n", size=4))
    (container,) = built(plan).init_containers
    assert container["command"] == ["tar", "-xzf", "/ciao-packed/files.tar.gz", "-C", "/ciao"]


def test_an_image_is_required() -> None:
    with pytest.raises(SpecError) as caught:
        pod_template.image_of(plan_of(HEADER), Settings())
    assert "needs an image that has its program" in caught.value.message
    assert "%image=… with prog and sh" in caught.value.hint
    assert pod_template.image_of(plan_of(HEADER), Settings(images={"custom": "a/b"})) == "a/b"


class Nobody:
    """A cluster that serves nothing but Kubernetes itself."""

    async def kinds(self, path: str) -> list[str]:
        return []


def test_the_operator_cannot_run_it() -> None:
    async def choose(lines: str) -> choice.Choice:
        nobody: Any = Nobody()
        plan = plan_of(HEADER + lines)
        asked = plan.spec.cluster.api or ApiName.AUTO
        return await choice._choice(asked, plan, nobody, Settings())

    assert asyncio.run(choose("")).api is JOB
    with pytest.raises(SpecError, match="has no kind for custom jobs"):
        asyncio.run(choose("%api=v1\n"))


def test_the_variables_of_all_replicas_have_a_limit() -> None:
    plan = plan_of(HEADER + IMAGE)
    groups = (replace(plan.spec.groups[0], count=1000),)
    large = replace(plan, spec=replace(plan.spec, groups=groups))
    known = replica_variables.addresses("mine", large.spec.replicas())
    with pytest.raises(SpecError, match="which holds 1 MiB"):
        replica_variables.config_map(large, "mine", build(source()), known)
