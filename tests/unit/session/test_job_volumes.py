"""The setting jobVolumes: which cells get its volumes, what they are told, what a rerun has."""

from __future__ import annotations

from pathlib import Path

import pytest

from ciao_kernel.backends.kubernetes.backend import KubernetesBackend
from ciao_kernel.backends.local.backend import LocalBackend
from ciao_kernel.config import Settings, load
from ciao_kernel.errors import SettingError
from ciao_kernel.magics.header import Style
from ciao_kernel.model import Job, Owner, Source, SourceFile
from ciao_kernel.plugins import Backend, LackingVolumes, Plan
from ciao_kernel.session import job_record, job_volumes, planning
from ciao_kernel.session.plugin_registry import Registry

REGISTRY = Registry(third_party={})
TF = "%framework=tensorflow\n%worker=1\n"


def setting(names: str, **others: object) -> Settings:
    return Settings().with_values({"jobVolumes": names, **others}, "the test")


def plan_of(header: str, settings: Settings, *files: str) -> Plan:
    text = f"{header}print()\n"
    spec = planning.parse_cell(text, REGISTRY, settings, style=Style.CELL).spec
    others = tuple(SourceFile(path, b"", size=0) for path in files)
    source = Source(SourceFile("ciao_cell.py", b"", size=0), (), others)
    shown = planning.shown_header(spec, REGISTRY.table)
    return Plan(None, spec, REGISTRY.framework("tensorflow"), source, Path("/"), shown, Owner("a"))


def added(
    header: str, settings: Settings, *files: str, backend: Backend | None = None
) -> tuple[list[str], tuple[str, ...]]:
    plan = plan_of(header, settings, *files)
    made, notices = job_volumes.with_volumes(
        plan, settings, backend or KubernetesBackend(settings), REGISTRY.table
    )
    return [str(one) for one in made.spec.volumes], notices


def test_every_cell_has_the_volumes_and_says_so_once() -> None:
    settings = setting("data:input:ro tmp:1Gi:/scratch")
    volumes, notices = added(f"{TF}%volume=team:runs\n", settings)
    assert volumes == ["team:runs", "data:input:ro", "tmp:1Gi:/scratch"]
    assert notices == (
        "mounted, because the setting jobVolumes names them: data:input:ro, tmp:1Gi:/scratch",
    )
    assert added(TF, Settings()) == ([], ())


@pytest.mark.parametrize(
    "own", ["%volume=team:input\n", "%volume=team:input/train\n", "%ps=1;%volume=tmp:input\n"]
)
def test_the_place_that_a_cell_names_is_the_cells(own: str) -> None:
    volumes, notices = added(f"%framework=tensorflow\n{own}%worker=1\n", setting("data:input"))
    assert not any("data" in one for one in volumes)
    assert notices == ()


@pytest.mark.parametrize(
    ("more", "files", "why"),
    [
        ("", ("data/x.csv",), "the program's file data/x.csv is at the same place."),
        ("%checkpoint=runs\n", (), ""),
        ("%output=data/x.csv\n", (), "%output names data/x.csv, and the volume a:data is there:"),
        ("%output=data/x.csv by:claim\n", (), ""),
    ],
)
def test_what_else_is_there_leaves_one_out(more: str, files: tuple[str, ...], why: str) -> None:
    volumes, notices = added(f"{TF}{more}", setting("a:data"), *files)
    assert volumes == ([] if why else ["a:data"])
    (said,) = notices
    assert said.startswith(f"left out a:data of the setting jobVolumes: {why}" if why else "mount")


def test_the_folder_of_checkpoints_stays() -> None:
    volumes, (said,) = added(f"{TF}%checkpoint=runs\n", setting("a:checkpoint"))
    assert volumes == []
    assert "%checkpoint mounts the folder checkpoint there." in said


def test_this_machine_leaves_out_what_it_has_no_folder_for(tmp_path: Path) -> None:
    settings = setting(
        "data/a:input other:x lost:y tmp:z host:/nowhere/q:h c:/abs",
        volumes=f"data={tmp_path} lost=/nowhere",
        storage=str(tmp_path),
    )
    (tmp_path / "a").mkdir()
    local = LocalBackend(settings)
    assert isinstance(local, LackingVolumes)
    assert not isinstance(KubernetesBackend(settings), LackingVolumes)
    volumes, notices = added(TF, settings, backend=local)
    assert volumes == ["data/a:input", "tmp:z"]
    first, *left = notices
    assert first.endswith(": data/a:input, tmp:z")
    for one, why in zip(
        left,
        (
            "other:x of the setting jobVolumes: the volume other:x has no folder on this machine.",
            "lost:y of the setting jobVolumes: the folder of the volume lost:y does not exist",
            "the folder of the volume host:/nowhere/q:h does not exist on this machine",
            "the volume c:/abs has an absolute path",
        ),
        strict=True,
    ):
        assert one.startswith("left out ")
        assert why in one


def test_a_rerun_has_what_the_job_had_whatever_the_setting_is_now(tmp_path: Path) -> None:
    settings = setting("data:input:ro")
    plan = plan_of(f"{TF}%dryrun\n", settings)
    made, _ = job_volumes.with_volumes(plan, settings, KubernetesBackend(settings), REGISTRY.table)
    assert "%volume=data:input:ro\n" in made.header
    assert "%dryrun" not in made.header
    record = job_record.of(made, REGISTRY.table)
    job = Job("mnist", "kubernetes", "tensorflow", (), 1.0, "team")
    for now in (Settings(), setting("other:x")):
        again = planning.plan_again(
            job, record.header, record.shown, made.source, tmp_path, REGISTRY, now, Owner("a")
        )
        assert again.spec.volumes == made.spec.volumes


def test_a_file_has_them_as_text_or_as_an_array(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    for value in ("\"data:in:ro 'a/b c:x'\"", '["data:in:ro", "a/b c:x"]'):
        path.write_text(f"jobVolumes = {value}\n")
        made = load([path], {})
        assert [str(one) for one in made.job_volumes] == ["data:in:ro", "a/b c:x"]
        (shown,) = (value for name, value, *_ in made.rows() if name == "jobVolumes")
        assert load([], {"CIAO_JOB_VOLUMES": shown}).job_volumes == made.job_volumes
    path.write_text('jobVolumes = "data:in other:in/x"\n')
    with pytest.raises(SettingError) as caught:
        load([path], {})
    assert caught.value.message == (
        f"{path}: jobVolumes cannot be 'data:in other:in/x': expected a folder of its own; in is "
        "the folder of data."
    )
