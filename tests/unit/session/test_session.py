"""What a session does before a job exists: read, choose, and lay options over the header."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ciao_kernel.backends.local.preview import text
from ciao_kernel.backends.local.replica_plan import ReplicaPlan
from ciao_kernel.config import Settings
from ciao_kernel.errors import (
    DirectiveError,
    PluginError,
    SettingError,
    SourceError,
    SpecError,
    UsageError,
    describe,
)
from ciao_kernel.magics.header import Style
from ciao_kernel.model import (
    BuildSpec,
    Event,
    Gpu,
    Job,
    JobSpec,
    Notice,
    Owner,
    Replica,
    Runner,
    Source,
    SourceFile,
)
from ciao_kernel.plugins import Plan
from ciao_kernel.session import selection
from ciao_kernel.session.plugin_registry import Registry
from ciao_kernel.session.session import Session

FILE = """\
#%framework=tensorflow
#%ps=1
#%worker=2;%cpu=1;%gpu=1
#%envvar=A=1 B=2
#%args=--old
print()
"""


def session(**settings: object) -> Session:
    return Session(Registry({}), Owner("me"), Settings(**settings))  # type: ignore[arg-type]


def merged(**options: list[str]) -> JobSpec:
    return session().parse(FILE, Style.FILE, options).spec


def test_an_option_wins_over_the_header() -> None:
    spec = merged(worker=["4"], args=["--new"], name=["mnist"])
    assert spec.count("worker") == 4
    assert spec.count("ps") == 1
    assert spec.args == ("--new",)
    assert spec.name == "mnist"


def test_a_roles_resources_stay_where_an_option_only_counts() -> None:
    asked = merged(worker=["4"]).asks("worker")
    assert (asked.cpu, asked.gpu) == ("1", Gpu(1))
    asked = merged(worker=["4;%gpu=2"]).asks("worker")
    assert (asked.cpu, asked.gpu) == ("1", Gpu(2))


def test_a_resource_for_all_wins_over_one_of_the_header() -> None:
    spec = merged(cpu=["8"])
    assert spec.asks("worker").cpu == spec.asks("ps").cpu == "8"
    assert spec.asks("worker").gpu == Gpu(1)


def test_an_option_that_names_the_default_wins_too() -> None:
    text = "#%framework=pytorch\n#%runner=python\nprint()\n"
    spec = session().parse(text, Style.FILE, {"runner": ["auto"]}).spec
    assert spec.runner is Runner.AUTO


def test_variables_add_up() -> None:
    assert dict(merged(envvar=["B=3 C=4"]).env) == {"A": "1", "B": "3", "C": "4"}


def test_another_framework_is_checked_as_one() -> None:
    with pytest.raises(UsageError, match="pytorch has no replicas of the role ps") as caught:
        merged(framework=["pytorch"])
    assert isinstance(caught.value, DirectiveError)
    assert caught.value.line == 2


def test_the_default_framework_is_a_setting() -> None:
    made = session(framework="pytorch").parse("%worker=1\nprint()\n")
    assert made.spec.framework == "pytorch"
    assert [group.role for group in made.spec.groups] == ["master", "worker"]


def test_roles_with_a_count_of_zero_are_dropped() -> None:
    spec = session().parse("%framework=tensorflow\n%ps=0\n%worker=1\nprint()\n").spec
    assert spec.replicas() == (Replica("worker", 0),)


def test_an_error_of_the_framework_gets_its_line() -> None:
    with pytest.raises(DirectiveError) as caught:
        session().parse("# a comment\n%framework=tensorflow\n%chief=2\nprint()\n")
    assert (caught.value.line, caught.value.text) == (3, "%chief=2")


def test_another_interpreter_may_know_another_syntax() -> None:
    cell = "%framework=tensorflow\nprint 'old'\n"
    with pytest.raises(SourceError):
        session().parse(cell)
    assert session(python="/usr/bin/python9").parse(cell).code


def test_backends_and_builders_by_name() -> None:
    made = session()
    assert made.backend(None).name == made.backend("auto").name == "local"
    with pytest.raises(PluginError, match="no backend 'moon'"):
        made.backend("moon")
    with pytest.raises(SettingError, match="backend cannot be 'moon'"):
        session(backend="moon").backend(None)
    assert session(backend="moon").backend("local").name == "local"


def test_auto_in_a_cell_wins_over_the_settings() -> None:
    assert session(backend="moon").backend("auto").name == "local"


def chosen(spec: JobSpec, backend: str, setting: str = "") -> str:
    """The builder for a job on a backend, of which only the name matters."""
    runs: Any = SimpleNamespace(name=backend)
    return selection.builder(spec, runs, Registry({}), Settings(builder=setting)).name


@pytest.mark.parametrize(
    ("wishes", "name"),
    [
        ({}, "configmap"),
        ({"registry": "host/a", "pip_index": "https://a.b", "push_secret": "x"}, "configmap"),
        ({"packages": ("app",)}, "append"),
        ({"base": "python:3"}, "append"),
        ({"packages": ("app",), "apt": ("git",)}, "kaniko"),
        ({"conda_env": "environment.yml"}, "kaniko"),
        ({"dockerfile": "Dockerfile"}, "kaniko"),
        ({"packages": ("app",), "pip_secret": "index"}, "kaniko"),
        ({"requirements": "r.txt", "s2i_builder": "host/s2i"}, "s2i"),
    ],
)
def test_auto_takes_the_cheapest_builder_that_can_do_it(wishes: Any, name: str) -> None:
    spec = JobSpec("tensorflow", build=BuildSpec(**wishes))
    assert chosen(spec, "kubernetes") == name


def test_what_no_builder_brings_names_the_directives() -> None:
    spec = JobSpec("tensorflow", build=BuildSpec(apt=("git",), s2i_builder="host/s2i"))
    with pytest.raises(SpecError, match="no single builder supports %apt and %s2iBuilder"):
        chosen(spec, "kubernetes")
    with pytest.raises(SpecError, match="s2i does not support %apt"):
        chosen(replace(spec, builder="s2i"), "kubernetes")
    assert chosen(replace(spec, builder="s2i"), "local") == "folder"


def test_a_builder_that_the_settings_name() -> None:
    spec = JobSpec("tensorflow", build=BuildSpec(packages=("app",)))
    assert chosen(spec, "kubernetes", "kaniko") == "kaniko"
    assert chosen(spec, "local", "kaniko") == "folder"
    assert chosen(replace(spec, builder="append"), "kubernetes", "kaniko") == "append"
    with pytest.raises(SpecError, match="configmap, named by the settings, does not") as caught:
        chosen(spec, "kubernetes", "configmap")
    assert caught.value.hint == "%builder=auto chooses a suitable builder."
    assert chosen(replace(spec, builder="auto"), "kubernetes", "configmap") == "append"


@pytest.mark.parametrize("by_cell", [True, False])
def test_folders_of_this_machine_are_nothing_for_a_cluster(by_cell: bool) -> None:
    spec = JobSpec("tensorflow", builder="folder" if by_cell else "")
    with pytest.raises(SpecError, match="works for local, but this job is for kubernetes"):
        chosen(spec, "kubernetes", "folder")
    assert chosen(spec, "local", "folder") == "folder"
    # A third party's backend may find that folder on a file server.
    assert chosen(spec, "slurm", "folder") == "folder"


def test_a_dry_run_shows_what_a_shell_would_run(tmp_path: Path) -> None:
    registry = Registry({})
    framework = registry.framework("tensorflow")
    source = Source(
        SourceFile("ciao_cell.py", b"x" * 1234, size=1234), files=(SourceFile("a b.csv", size=7),)
    )
    plan = Plan(
        None,
        JobSpec("tensorflow"),
        framework,
        source,
        tmp_path,
        "%framework=tensorflow",
        Owner("me"),
    )
    one = ReplicaPlan(Replica("worker", 0), ("python", "-u", "/a b/c.py"), (("K", "two words"),))
    shown = text(plan, (one, replace(one, replica=Replica("worker", 1))), "local")
    assert shown.splitlines() == [
        "would run on local:",
        "",
        "header:",
        "  %framework=tensorflow",
        "",
        "files:",
        "  ciao_cell.py  1,234 bytes",
        "  a b.csv  7 bytes",
        "",
        "worker-0:",
        "  python -u '/a b/c.py'",
        "    K='two words'",
        "",
        "worker-1:",
        "  python -u '/a b/c.py'",
        "    K='two words'",
    ]
    long = replace(one, command=("python", "-c", "a\nb"), env=())
    shown = text(plan, (long, replace(long, replica=Replica("worker", 1))), "local")
    assert shown.endswith("worker-0:\n  python -c 'a\nb'\n\nworker-1:\n  # the command of worker-0")


@pytest.mark.parametrize(
    ("options", "message", "hint"),
    [
        ({"worker": ["0"]}, "nothing would run", "Add workers, for example --worker=2."),
        ({"chief": ["2"]}, "at most one chief", "Write --chief=1, and --worker for the others."),
        ({"nproc-per-node": ["2"]}, "are for torchrun", "Ask for more workers with --worker."),
        ({"envvar": ["A"]}, "--envvar takes KEY", "--envvar=\"EPOCHS=3 MODE='very fast'\""),
        ({"detach": ["maybe"]}, "--detach cannot be", "For example: --detach"),
        ({"follow": ["ps"]}, "no role or replica 'ps'", "It has worker (worker-0 to worker-1)."),
    ],
)
def test_an_options_mistake_is_told_as_an_option(
    options: dict[str, list[str]], message: str, hint: str
) -> None:
    text = "#%framework=tensorflow\n#%worker=2\n#%follow=worker\nprint()\n"
    with pytest.raises(UsageError) as caught:
        session().parse(text, Style.FILE, options)
    assert message in caught.value.message
    assert hint in caught.value.hint
    assert not any(line.startswith("line ") for line in describe(caught.value))


def test_a_command_in_a_hint_is_no_option() -> None:
    parsed = session().parse(FILE, Style.FILE, {"worker": ["3"]})
    error = SpecError("too many for %ps.", "`%ciao config localReplicas=…`", directive="worker")
    located = parsed.locate(error)
    assert located.message == "too many for --ps."
    assert located.hint == error.hint


@pytest.mark.parametrize("name", ["worker", "worker-1", "master", "master-0", "worker-0 'master'"])
def test_follow_takes_what_the_job_has(name: str) -> None:
    spec = session().parse(f"%framework=pytorch\n%worker=2\n%follow={name}\nprint()\n").spec
    assert " ".join(spec.follow) == name.replace("'", "")


@pytest.mark.parametrize(
    ("header", "name", "hint"),
    [
        ("tensorflow %ps=1 %worker=7", "chief", "It has ps (ps-0) and worker (worker-0 to w"),
        ("tensorflow %ps=0 %worker=1", "ps", "It has worker (worker-0)."),
        ("tensorflow %worker=7", "worker-7", "Did you mean worker-6?"),
        ("tensorflow %worker=2", "worker-00", "It has worker"),
        ("tensorflow %worker=2", "wrker", "Did you mean worker?"),
        ("tensorflow %worker=2", "worker-²", "It has worker"),
        ("pytorch", "worker", "It has master (master-0)."),
        ("pytorch %worker=1", "master-1", "Did you mean master-0?"),
        ("pytorch %worker=1 %follow=master", "ps", "It has master (master-0) and worker"),
    ],
)
def test_follow_takes_nothing_else(header: str, name: str, hint: str) -> None:
    text = f"%framework={header}".replace(" ", "\n") + f"\n%cpu=1;%follow={name}\n"
    with pytest.raises(DirectiveError) as caught:
        session().parse(text + "%follow=master-0 worker-0\nprint()\n" * ("pyt" in text) + "x")
    error = caught.value
    assert error.text == f"%cpu=1;%follow={name}"
    assert error.text[error.column :] == name
    assert f"no role or replica {name!r}" in error.message
    assert hint in error.hint


def test_replicas_that_an_option_adds_can_be_followed() -> None:
    text = "#%framework=tensorflow\n#%worker=1\n#%follow=worker-3\nprint()\n"
    assert session().parse(text, Style.FILE, {"worker": ["4"]}).spec.follow == ("worker-3",)


def test_no_server_can_be_asked_about_a_job_of_this_machine(tmp_path: Path) -> None:
    class Nothing:
        def begin(self, job: Job, follow: tuple[str, ...]) -> None: ...

        def show(self, event: Event) -> None:
            raise AssertionError(event)

        async def end(self) -> None: ...

    cell = "%framework=tensorflow\n%backend=local\n%dryrun=server\nprint()\n"
    with pytest.raises(DirectiveError, match="no server for a dry run") as caught:
        asyncio.run(session().run(cell, Nothing(), tmp_path))
    assert caught.value.line == 3


def test_what_lists_show_of_a_job_holds_no_secret_and_no_dry_run(tmp_path: Path) -> None:
    shown: list[Notice] = []

    class Shown:
        def begin(self, job: Job, follow: tuple[str, ...]) -> None: ...

        def show(self, event: Event) -> None:
            assert isinstance(event, Notice)
            shown.append(event)

        async def end(self) -> None: ...

    cell = "%framework=tensorflow\n%dryrun\n%envvar=A=hunter2 B='x y'\nprint()\n"
    assert asyncio.run(session().run(cell, Shown(), tmp_path)) is None
    header = shown[-1].text.partition("files:")[0]
    assert "  %envvar=A=… B=…\n" in header
    assert "dryrun" not in header


@pytest.mark.parametrize("set_here", [False, True])
def test_what_keras_3_refuses_is_a_note_before_the_start(
    set_here: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[str] = []

    class Shown:
        def begin(self, job: Job, follow: tuple[str, ...]) -> None: ...

        def show(self, event: Event) -> None:
            assert isinstance(event, Notice)
            shown.append(event.text)

        async def end(self) -> None: ...

    monkeypatch.delenv("TF_USE_LEGACY_KERAS", raising=False)
    if set_here:  # the replicas of this machine have it too
        monkeypatch.setenv("TF_USE_LEGACY_KERAS", "1")
    cell = (
        "%framework=tensorflow\n%worker=2\n%backend=local\n%dryrun\n"
        "from keras import Model\nMultiWorkerMirroredStrategy()\nModel().fit()\n"
    )
    assert asyncio.run(session().run(cell, Shown(), tmp_path)) is None
    notes = [text for text in shown if "Keras 3" in text]
    assert len(notes) == (0 if set_here else 1)
