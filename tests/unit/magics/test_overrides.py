"""Options of a command line over the header of a file: each changes only what it names."""

from __future__ import annotations

import pytest

from ciao_kernel.config import Settings
from ciao_kernel.errors import DirectiveError
from ciao_kernel.magics.header import Style
from ciao_kernel.model import JobSpec
from ciao_kernel.session.planning import parse_cell
from ciao_kernel.session.plugin_registry import Registry

REGISTRY = Registry(third_party={})
HEADER = """\
#%framework=tensorflow
#%cpu=1;%memory=1Gi
#%ps=1;%cpu=2;%volume=a:x
#%worker=2;%cpu=3;%gpu=1
#%envvar=A=1 B=2
#%args=--epochs 3
#%image=python:3.13
#%packages=pandas
#%detach
"""


def read(header: str = HEADER, **options: str) -> JobSpec:
    given = {name.replace("_", "-"): [value] for name, value in options.items()}
    text = f"{header}pass\n"
    return parse_cell(text, REGISTRY, Settings(), style=Style.FILE, options=given).spec


def asked(spec: JobSpec, role: str) -> tuple[str | None, str | None, int]:
    found = spec.asks(role)
    return found.cpu, found.memory, found.gpu.count if found.gpu else 0


def test_a_header_without_options_stays() -> None:
    spec = read()
    assert (spec.count("ps"), spec.count("worker"), spec.detach) == (1, 2, True)
    assert (asked(spec, "ps"), asked(spec, "worker")) == (("2", "1Gi", 0), ("3", "1Gi", 1))
    assert spec.cluster.image == "python:3.13"


def test_the_count_of_a_role_keeps_what_its_replicas_ask_for() -> None:
    spec = read(worker="5")
    assert (spec.count("ps"), spec.count("worker")) == (1, 5)
    assert asked(spec, "worker") == ("3", "1Gi", 1)
    assert [str(one) for one in read(ps="3").volumes_of("ps")] == ["a:x"]
    spec = read(worker="5;%cpu=8")
    assert asked(spec, "worker") == ("8", "1Gi", 1)
    assert asked(spec, "ps") == ("2", "1Gi", 0)


def test_a_role_that_the_header_lacks_is_added_and_one_may_be_taken_away() -> None:
    spec = read(evaluator="1", ps="0")
    assert (spec.count("ps"), spec.count("worker"), spec.count("evaluator")) == (0, 2, 1)
    assert asked(spec, "evaluator") == ("1", "1Gi", 0)


def test_a_resource_for_all_roles_replaces_that_of_each_role_alone() -> None:
    spec = read(cpu="4")
    assert [group.resources.cpu for group in spec.groups] == [None, None], "it is shown once"
    assert asked(spec, "ps") == ("4", "1Gi", 0)
    assert asked(spec, "worker") == ("4", "1Gi", 1)


def test_volumes_for_all_roles_replace_those_of_each_role_alone() -> None:
    assert [str(one) for one in read().volumes_of("ps")] == ["a:x"]
    spec = read(volume="b:x c:y")
    assert [str(one) for one in spec.volumes_of("ps")] == ["b:x", "c:y"]
    assert [str(one) for one in spec.volumes_of("worker")] == ["b:x", "c:y"]
    spec = read(ps="1;%volume=d:z")
    assert [str(one) for one in spec.volumes_of("ps")] == ["d:z"]
    assert spec.volumes_of("worker") == ()
    spec = read("#%framework=tensorflow\n#%worker=1\n#%volume=a:x\n", worker="2;%volume=b:y")
    assert [str(one) for one in spec.volumes_of("worker")] == ["a:x", "b:y"]


def test_each_variable_is_replaced_alone() -> None:
    assert dict(read(envvar="B=3 C=4").env) == {"A": "1", "B": "3", "C": "4"}


def test_each_directive_is_replaced_alone() -> None:
    spec = read(args="--epochs 9", image="python:3.12", detach="false")
    assert (spec.args, spec.cluster.image) == (("--epochs", "9"), "python:3.12")
    assert not spec.detach
    assert (read().build.packages, read(packages="scipy").build.packages) == (
        ("pandas",),
        ("scipy",),
    )
    same = read(worker="2")
    assert (same.args, same.cluster, same.build) == (read().args, read().cluster, read().build)


@pytest.mark.parametrize(
    ("options", "message", "hint"),
    [
        ({"framework": "pytorch"}, "pytorch has no replicas of the role ps.",
         "It has master, worker."),
        ({"worker": "1;%volume=c:y/z"},
         "--volume cannot be 'c:y/z' in replicas of the role worker: "
         "expected a folder of its own; y is the folder of b.",
         "Name another folder."),
        ({"command": "sh x"},
         "--command is for programs in any language, but tensorflow runs the program itself.",
         "Leave out --command (--args has the arguments of the program), "
         "or write --framework=custom."),
    ],
)  # fmt: skip
def test_options_that_do_not_fit_the_header(
    options: dict[str, str], message: str, hint: str
) -> None:
    with pytest.raises(DirectiveError) as caught:
        read(f"{HEADER}#%volume=b:y\n", **options)
    assert (caught.value.message, caught.value.hint) == (message, hint)
    assert caught.value.text
