"""What a job was made of, and the objects of a job that is made of it again."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ciao_kernel.backends.kubernetes.apis import JOB, OPERATOR_V1, TRAINER, Api
from ciao_kernel.backends.kubernetes.manifests import manifest
from ciao_kernel.builders import configmap
from ciao_kernel.config import Settings
from ciao_kernel.delivery.input.git_commit import commit_of
from ciao_kernel.errors import UsageError
from ciao_kernel.magics import render
from ciao_kernel.model import Job, Owner, Source, SourceFile
from ciao_kernel.plugins import Plan
from ciao_kernel.session import job_record, planning
from ciao_kernel.session.plugin_registry import Registry

REGISTRY = Registry({})
SETTINGS = Settings(images={"python": "i", "custom": "i", "mpi": "i", "xgboost": "i"})
ALL = """\
%name=mnist
%memory=2Gi
%envvar=TOKEN='very secret' A=b
%args=--lr '0.1 x'
%checkpoint=runs/a
%grace=60s
%retries=3
%volume=data:in:ro
"""
CELLS = {
    "tensorflow": "%framework=tensorflow\n%ps=1\n%worker=2\n",
    "pytorch": "%framework=pytorch\n%worker=2\n%nprocPerNode=2\n",
    "elastic": "%framework=pytorch\n%worker=3\n%min=2\n",
    "jax": "%framework=jax\n%worker=2\n",
    "xgboost": "%framework=xgboost\n%worker=2\n",
    "paddle": "%framework=paddle\n%worker=2\n",
    "mpi": "%framework=mpi\n%worker=2\n%slots=2\n",
    "python": "%framework=python\n%worker=2\n",
    "custom": "%framework=custom\n%worker=2\n%command=awk -f {cell}\n",
}


def plan_of(text: str, folder: Path, source: Source) -> Plan:
    parsed = planning.parse_cell(f"{text}pass\n", REGISTRY, SETTINGS)
    framework = REGISTRY.framework(parsed.spec.framework)
    shown = render.render(parsed.spec, REGISTRY.table, secrets=False)
    return Plan(parsed.spec.name, parsed.spec, framework, source, folder, shown, Owner("ada"))


def objects(plan: Plan, name: str, api: Api) -> list[Any]:
    """All objects of a job, with its name and submission left out."""
    artifact = configmap._artifact(plan.source, "python3", name)
    replicas = plan.spec.replicas()
    job = Job(name, "kubernetes", plan.framework.name, replicas, 1.0, "team", header=plan.header)
    made = manifest.objects(plan, job, artifact, SETTINGS, f"run-{name}", sleeps=True, api=api)
    text = json.dumps([made.path, made.job, *made.beside])
    # The digest in the names of ConfigMaps covers the hosts of the replicas.
    names = {one["metadata"]["name"]: f"<{number}>" for number, one in enumerate(made.beside)}
    for old, new in sorted(names.items(), key=lambda pair: -len(pair[0])):
        text = text.replace(f'"{old}"', f'"{new}"')
    text = text.replace(f"run-{name}", "<run>").replace(f"{name}-", "<job>-")
    found: list[Any] = json.loads(
        text.replace(f'"{name}"', '"<job>"').replace(f".{name}", ".<job>")
    )
    return found


@pytest.fixture
def source(tmp_path: Path) -> Source:
    """A program, a module, values, and a program on the disk that may be run."""
    tool = tmp_path / "tool.sh"
    tool.write_bytes(b"#!/bin/sh\n")
    tool.chmod(0o755)
    files = (SourceFile("in.bin", b"\0\xff", size=2), SourceFile("tool.sh", None, tool, 10))
    return Source(
        SourceFile("ciao_cell.py", b"print()\n", size=8),
        (SourceFile("own.py", b"x = 1\n", size=6),),
        files,
        frozenset({"numpy", "own"}),
    )


@pytest.mark.parametrize(
    ("cell", "api"),
    [
        *((cell, OPERATOR_V1) for cell in CELLS if cell not in ("python", "custom")),
        *((cell, JOB) for cell in CELLS if cell not in ("elastic", "mpi")),
        ("tensorflow", TRAINER),
    ],
    ids=lambda one: getattr(one, "name", one),
)
def test_the_objects_of_a_rerun_are_those_of_the_job_but_for_its_name(
    cell: str, api: Api, source: Source, tmp_path: Path
) -> None:
    text = CELLS[cell] + (ALL.replace("%retries=3\n", "") if api is TRAINER else ALL)
    plan = plan_of(text, tmp_path, source)
    first = objects(plan, "mnist", api)
    job = Job(
        "mnist", "kubernetes", plan.framework.name, (), 1.0, "team", folder=str(tmp_path / "j")
    )

    job_record.keep(job_record.of(plan, REGISTRY.table), job)
    record = job_record.read(job)
    (programs := tmp_path / "programs").mkdir()
    again = planning.plan_again(
        job,
        record.header,
        record.shown,
        job_record.source(record, programs),
        tmp_path,
        REGISTRY,
        SETTINGS,
        Owner("ada"),
    )
    assert again.name == "mnist"
    assert "very secret" not in again.header
    assert objects(again, "mnist-2", api) == first


def test_a_job_without_a_name_keeps_that_of_its_checkpoints(source: Source, tmp_path: Path) -> None:
    plan = plan_of("%framework=tensorflow\n%worker=1\n%checkpoint=runs\n", tmp_path, source)
    record = job_record.of(plan, REGISTRY.table)
    job = Job("tensorflow-abcde", "local", "tensorflow", (), 1.0, str(tmp_path))
    again = planning.plan_again(
        job, record.header, record.shown, source, tmp_path, REGISTRY, SETTINGS, Owner("ada")
    )
    assert again.spec == replace(plan.spec, name="tensorflow-abcde")


def test_the_record_is_private_and_describes_the_source(source: Source, tmp_path: Path) -> None:
    plan = plan_of(CELLS["tensorflow"] + ALL, tmp_path, source)
    record = job_record.of(plan, REGISTRY.table)
    job = Job("mnist", "local", "tensorflow", (), 1.0, str(tmp_path / "job"))
    job_record.keep(record, job)
    (file,) = (tmp_path / "job" / ".ciao").iterdir()
    assert file.stat().st_mode & 0o077 == 0
    (what, text) = record.facts[0]
    assert what == "source"
    assert text.endswith("(4 files, 26 bytes)")
    assert job_record.read(job) == record
    changed = replace(source, entry=SourceFile("ciao_cell.py", b"print(1)", size=8))
    assert job_record.of(replace(plan, source=changed), REGISTRY.table).facts[0] != record.facts[0]


def test_a_large_source_is_not_recorded(source: Source, tmp_path: Path) -> None:
    large = replace(source, entry=replace(source.entry, size=job_record._MOST + 1))
    plan = plan_of(CELLS["tensorflow"], tmp_path, large)
    job = Job("mnist", "local", "tensorflow", (), 1.0, str(tmp_path / "job"))
    earlier = plan_of(CELLS["tensorflow"], tmp_path, source)  # a run in the same warm replicas
    job_record.keep(job_record.of(earlier, REGISTRY.table), job)
    job_record.keep(job_record.of(plan, REGISTRY.table), job)
    with pytest.raises(UsageError, match="no record of what mnist was made of"):
        job_record.read(job)


def test_a_place_that_is_no_folder_gets_no_record(
    source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    plan = plan_of(CELLS["tensorflow"], tmp_path, source)
    job_record.keep(
        job_record.of(plan, REGISTRY.table), Job("m", "x", "x", (), 1.0, "their-cluster")
    )
    assert [one.name for one in tmp_path.iterdir()] == ["tool.sh"]


def test_a_broken_record_is_an_error_with_a_remedy(tmp_path: Path) -> None:
    (tmp_path / ".ciao").mkdir(mode=0o700)
    (tmp_path / ".ciao" / "made_of.json").write_text('{"version": 1}')
    (tmp_path / ".ciao" / "made_of.json").chmod(0o600)
    job = Job("mnist", "local", "tensorflow", (), 1.0, str(tmp_path))
    with pytest.raises(UsageError, match="cannot be read"):
        job_record.read(job)


class TestCommit:
    ONE, TWO = "1" * 40, "2" * 40

    def repository(self, folder: Path, head: str) -> Path:
        (folder / ".git" / "refs" / "heads").mkdir(parents=True)
        (folder / ".git" / "HEAD").write_text(f"{head}\n")
        (folder / "sub").mkdir()
        return folder / "sub"

    def test_of_a_branch(self, tmp_path: Path) -> None:
        inside = self.repository(tmp_path, "ref: refs/heads/main")
        assert commit_of(inside) == ""
        (tmp_path / ".git" / "packed-refs").write_text(f"# pack\n{self.ONE} refs/heads/main\n")
        assert commit_of(inside) == self.ONE
        (tmp_path / ".git" / "refs" / "heads" / "main").write_text(f"{self.TWO}\n")
        assert commit_of(inside) == self.TWO

    def test_without_a_branch_and_of_a_worktree(self, tmp_path: Path) -> None:
        self.repository(tmp_path / "a", self.ONE)
        assert commit_of(tmp_path / "a") == self.ONE
        own = tmp_path / "a" / ".git" / "worktrees" / "b"
        own.mkdir(parents=True)
        (own / "HEAD").write_text("ref: refs/heads/other\n")
        (own / "commondir").write_text("../..\n")
        (tmp_path / "a" / ".git" / "refs" / "heads" / "other").write_text(self.TWO)
        (tmp_path / "b").mkdir()
        (tmp_path / "b" / ".git").write_text(f"gitdir: {own}\n")
        assert commit_of(tmp_path / "b") == self.TWO

    def test_none(self, tmp_path: Path) -> None:
        self.repository(tmp_path, "nonsense")
        assert commit_of(tmp_path) == ""
