"""%backoffLimit counts restarts, so a job needs some."""

from __future__ import annotations

from dataclasses import replace
from importlib.metadata import EntryPoint

import pytest

from ciao_kernel.config import Settings
from ciao_kernel.errors import DirectiveError
from ciao_kernel.frameworks.python import Python
from ciao_kernel.model import JobSpec, RestartPolicy
from ciao_kernel.session.planning import parse_cell
from ciao_kernel.session.plugin_registry import Registry

REGISTRY = Registry(third_party={})


class Restarting(Python):
    """A framework whose programs are always started again."""

    name = "restarting"

    def complete(self, spec: JobSpec) -> JobSpec:
        cluster = replace(spec.cluster, restart_policy=RestartPolicy.ON_FAILURE)
        return super().complete(replace(spec, cluster=cluster))


def read(header: str, **options: list[str]) -> JobSpec:
    text = f"%framework=pytorch\n%worker=2\n%backoffLimit=3\n{header}pass\n"
    return parse_cell(text, REGISTRY, Settings(), options=options).spec


@pytest.mark.parametrize("header", ["", "%restartPolicy=Never\n", "%retries=2\n"])
def test_without_restarts_it_would_have_no_effect(header: str) -> None:
    with pytest.raises(DirectiveError) as caught:
        read(header)
    assert caught.value.line == 3
    assert caught.value.message == (
        "%backoffLimit counts restarts, and this job starts no failed program again."
    )
    assert caught.value.hint == (
        "Add %restartPolicy=OnFailure, or leave it out; "
        "%retries=3 starts the whole job again after the loss of a replica."
    )


@pytest.mark.parametrize(
    "header",
    [
        "%restartPolicy=OnFailure\n",
        "%restartPolicy=Always\n",
        "%restartPolicy=ExitCode\n",
        "%min=1\n",
    ],
)
def test_with_restarts_it_is_their_limit(header: str) -> None:
    assert read(header).cluster.backoff_limit == 3


@pytest.mark.parametrize("header", ["", "%restartPolicy=Never\n"])
def test_no_restart_is_a_limit_of_any_job(header: str) -> None:
    assert read(header, **{"backoff-limit": ["0"]}).cluster.backoff_limit == 0


def test_no_restart_policy_is_advised_to_a_framework_that_takes_none() -> None:
    text = "%framework=mpi\n%worker=2\n%backoffLimit=3\npass\n"
    with pytest.raises(DirectiveError, match="starts no failed program again") as caught:
        parse_cell(text, REGISTRY, Settings())
    assert "%restartPolicy" not in caught.value.hint
    assert caught.value.hint.startswith("Leave it out; ")


def test_the_framework_may_set_the_restarts() -> None:
    point = EntryPoint("restarting", f"{__name__}:Restarting", "")
    registry = Registry({"frameworks": {"restarting": point}})
    text = "%framework=restarting\n%worker=2\n%backoffLimit=3\npass\n"
    assert parse_cell(text, registry, Settings()).spec.cluster.backoff_limit == 3


def test_an_option_may_bring_the_restarts() -> None:
    assert read("", **{"restart-policy": ["OnFailure"]}).cluster.backoff_limit == 3


def test_a_warm_job_has_an_error_of_its_own() -> None:
    assert read("%warm\n").warm is not None
