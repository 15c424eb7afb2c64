"""What two cells must have in common to share warm replicas, and the processes of a run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ciao_kernel.config import Settings
from ciao_kernel.errors import SourceError
from ciao_kernel.frameworks.pytorch import PyTorch
from ciao_kernel.frameworks.tensorflow import TensorFlow
from ciao_kernel.magics.header import Style
from ciao_kernel.model import Address, JobSpec, Owner, Replica, Source, SourceFile
from ciao_kernel.plugins import Plan
from ciao_kernel.session.planning import parse_cell
from ciao_kernel.session.plugin_registry import Registry
from ciao_kernel.session.warm.key import Key, key_of

HEAD = "%framework=pytorch\n%worker=2;%cpu=1\n%warm\n"
REGISTRY = Registry({})


def spec(header: str) -> JobSpec:
    return parse_cell(f"{header}x", REGISTRY, Settings(), style=Style.CELL).spec


def key(
    header: str,
    folder: Path = Path("/x"),
    settings: Settings | None = None,
    backend: str = "kubernetes",
) -> Key:
    source = Source(SourceFile("cell.py", b""))
    plan = Plan(None, spec(header), PyTorch(), source, folder, "", Owner("me"))
    return key_of(plan, settings or Settings(), backend)


@pytest.mark.parametrize(
    "more",
    [
        "%args=--epochs 3\n", "%envvar=A=1\n", "%files=a.txt\n", "%input=df\n", "%output=a\n",
        "%plot=loss\n", "%follow=worker\n", "%lines=3\n", "%deadline=3m\n",
    ],
)  # fmt: skip
def test_what_a_run_brings_may_differ(more: str) -> None:
    assert key(HEAD).difference(key(HEAD + more), REGISTRY.table) == ""


@pytest.mark.parametrize(
    ("header", "words"),
    [
        ("%framework=pytorch\n%worker=3;%cpu=1\n%warm\n", "%worker"),
        ("%framework=pytorch\n%worker=2;%cpu=2\n%warm\n", "%cpu"),
        (HEAD + "%image=a/b:1\n", "%image"),
        (HEAD + "%packages=pandas\n%nprocPerNode=2\n", "%nprocPerNode and %packages"),
        (HEAD + "%name=other\n", "%name"),
        ("%framework=pytorch\n%worker=2;%cpu=1;%volume=a:b\n%warm\n", "%volume"),
    ],
)
def test_what_replicas_cannot_change_is_named(header: str, words: str) -> None:
    assert key(HEAD).difference(key(header), REGISTRY.table) == words


def test_a_changed_requirements_file_is_another_environment(tmp_path: Path) -> None:
    header = HEAD + "%requirements=needed.txt\n"
    (tmp_path / "needed.txt").write_text("numpy")
    before = key(header, tmp_path)
    (tmp_path / "needed.txt").write_text("pandas")
    assert before.difference(key(header, tmp_path), REGISTRY.table) == "%requirements"


@pytest.mark.parametrize("option", ["-r", "-c"])
def test_a_changed_file_that_requirements_name_is_another_environment(
    option: str, tmp_path: Path
) -> None:
    header = HEAD + "%requirements=needed.txt\n"
    (tmp_path / "needed.txt").write_text(f"torch\n{option} more.txt\n")
    (tmp_path / "more.txt").write_text("numpy==2.0")
    before = key(header, tmp_path)
    (tmp_path / "needed.txt").write_text(f"# a remark\ntorch\n{option} more.txt\n")
    assert before.difference(key(header, tmp_path), REGISTRY.table) == ""
    (tmp_path / "more.txt").write_text("numpy==2.1")
    assert before.difference(key(header, tmp_path), REGISTRY.table) == "%requirements"


def test_a_changed_file_that_a_dockerfile_takes_is_another_image(tmp_path: Path) -> None:
    header = HEAD + "%dockerfile=Dockerfile\n"
    (tmp_path / "Dockerfile").write_text("FROM a/b:1\nCOPY tools /tools\n")
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools/run.sh").write_text("one")
    before = key(header, tmp_path)
    (tmp_path / "notes.txt").write_text("taken by nobody")
    assert before.difference(key(header, tmp_path), REGISTRY.table) == ""
    (tmp_path / "tools/run.sh").write_text("two")
    assert before.difference(key(header, tmp_path), REGISTRY.table) == "%dockerfile"
    (tmp_path / "tools/run.sh").unlink()
    (tmp_path / "tools").rmdir()
    with pytest.raises(SourceError, match="there is no tools"):
        key(header, tmp_path)
    key(header, tmp_path, backend="local")  # where %dockerfile has no effect


def test_a_changed_setting_and_another_folder_are_named() -> None:
    other = replace(Settings(), stop_grace=1.0)
    named = key(HEAD).difference(key(HEAD, settings=other), REGISTRY.table)
    assert named == "the setting stopGrace"
    assert "folder" in key(HEAD).difference(key(HEAD, Path("/y")), REGISTRY.table)


OTHERS = {
    "silence": 0.0, "usage": "on", "lines": 7, "output_rate": 1000.0, "shutdown_wait": 2.0,
    "color": "never", "backend": "kubernetes", "framework": "pytorch",
}  # fmt: skip


def test_settings_that_reach_no_replica_may_change() -> None:
    changed = Settings().with_values(OTHERS, "%ciao config")
    assert key(HEAD).difference(key(HEAD, settings=changed), REGISTRY.table) == ""
    same = Settings().with_values({"cpu_request": "100m"}, "%ciao config")
    assert key(HEAD).difference(key(HEAD, settings=same), REGISTRY.table) == ""
    pods = changed.with_values({"cpu_request": "200m"}, "%ciao config")
    named = key(HEAD).difference(key(HEAD, settings=pods), REGISTRY.table)
    assert named == "the setting cpuRequest"


def test_the_wait_at_a_prompt_is_in_files_that_replicas_got_at_their_start() -> None:
    changed = Settings().with_values({"debug_wait": 5.0}, "%ciao config")
    named = key(HEAD).difference(key(HEAD, settings=changed), REGISTRY.table)
    assert named == "the setting debugWait"


def test_the_agent_starts_what_torchrun_would_start() -> None:
    asked = spec("%framework=pytorch\n%worker=1\n%nprocPerNode=2\n%warm\n")
    addresses = {one: Address("10.0.0.1", 1000 + i) for i, one in enumerate(asked.replicas())}
    own = PyTorch().processes(asked, Replica("worker", 0), addresses)
    found = [(one["RANK"], one["LOCAL_RANK"], one["WORLD_SIZE"], one["GROUP_RANK"]) for one in own]
    assert found == [("2", "0", "4", "1"), ("3", "1", "4", "1")]
    assert {(one["MASTER_ADDR"], one["MASTER_PORT"]) for one in own} == {("10.0.0.1", "1000")}


def test_other_frameworks_have_one_process_with_their_variables() -> None:
    asked = spec("%framework=tensorflow\n%ps=1\n%worker=1\n%warm\n")
    addresses = {one: Address("10.0.0.1", 1000 + i) for i, one in enumerate(asked.replicas())}
    (own,) = TensorFlow().processes(asked, Replica("worker", 0), addresses)
    assert '"ps":["10.0.0.1:1000"],"worker":["10.0.0.1:1001"]' in own["TF_CONFIG"]
