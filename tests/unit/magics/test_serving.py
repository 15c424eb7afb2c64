"""The roles of ``%serve``: how they are written, and which of them can serve."""

from __future__ import annotations

import pytest

from ciao_kernel.errors import SpecError
from ciao_kernel.magics import render
from ciao_kernel.magics.directives import serving
from ciao_kernel.magics.overrides import check_serve
from ciao_kernel.magics.parse import parse
from ciao_kernel.model import JobSpec
from ciao_kernel.session.plugin_registry import Registry

REGISTRY = Registry(third_party={})


def spec(*lines: str) -> JobSpec:
    return parse("".join(f"%{line}\n" for line in lines) + "x = 1", REGISTRY.table).spec


@pytest.mark.parametrize("text", ["ps,worker", "ps worker", "PS, worker,ps"])
def test_roles_are_separated_by_commas_or_blanks(text: str) -> None:
    found = spec("framework=tensorflow", "ps=1", "worker=1", f"serve={text}")
    assert found.serve == ("ps", "worker")
    header = render.render(found, REGISTRY.table)
    assert serving.roles_in(header) == ("ps", "worker")
    assert "%serve=ps,worker\n" in header


def test_a_stored_header_without_it_has_none() -> None:
    assert serving.roles_in("%framework=tensorflow\n%serve=\n") == ()
    assert serving.roles_in("%framework=tensorflow\n%worker=1\n") == ()


@pytest.mark.parametrize(
    ("lines", "message", "hint"),
    [
        (("framework=pytorch", "worker=1", "serve=worker"),
         "pytorch has no server that a replica could run instead of the program.",
         "Leave out %serve: every replica then runs the program."),
        (("framework=tensorflow", "worker=1", "serve=chief"),
         "replicas of the role chief cannot only serve.", "%serve takes ps and worker."),
        (("framework=tensorflow", "worker=1", "serve=ps"),
         "this job has no ps that could serve.", "Add %ps=1, or leave ps out of %serve."),
    ],
)  # fmt: skip
def test_what_cannot_serve_is_refused(lines: tuple[str, ...], message: str, hint: str) -> None:
    found = spec(*lines)
    with pytest.raises(SpecError) as caught:
        check_serve(found, REGISTRY.framework(found.framework))
    assert (caught.value.message, caught.value.hint) == (message, hint)
    assert caught.value.directive == "serve"


def test_a_misspelt_role_gets_the_nearest() -> None:
    found = spec("framework=tensorflow", "worker=1", "serve=wroker")
    with pytest.raises(SpecError) as caught:
        check_serve(found, REGISTRY.framework(found.framework))
    assert caught.value.hint == "Did you mean worker? %serve takes ps and worker."
