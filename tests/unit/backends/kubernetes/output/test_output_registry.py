"""What pods get for a push to a registry, where the kernel looks for it, and what helps."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ciao_kernel.backends.kubernetes.cluster.target import Target
from ciao_kernel.backends.kubernetes.output import output_registry, pushed_output
from ciao_kernel.config import Settings
from ciao_kernel.errors import EnvironmentFault, SpecError
from ciao_kernel.model import Job, JobSpec
from ciao_kernel.model.build_spec import BuildSpec
from ciao_kernel.oci import reference

NONE: Any = None
SETTINGS = Settings(registry="host.example/team/cells", plain_registries=("localhost:5000",))
SPEC = JobSpec("python", outputs=("output/", "by:registry"))


@pytest.mark.parametrize(
    ("registry", "secret", "repository", "by"),
    [
        (None, None, "host.example/team/cells/ciao-output", ""),
        ("localhost:5000/a:tag", "mine", "localhost:5000/a/ciao-output", "mine"),
    ],
)
def test_artifacts_are_below_the_repository_of_images(
    registry: str | None, secret: str | None, repository: str, by: str
) -> None:
    place = output_registry.place(SETTINGS, registry, secret)
    assert (place.repository.name, place.secret) == (repository, by)
    assert output_registry.place(replace(SETTINGS, push_secret="all"), None, None).secret == "all"


def test_a_job_that_exists_is_looked_for_where_its_header_says() -> None:
    header = "%registry=localhost:5000/a\n%pushSecret=mine\n%output=output/ by:registry\n"
    job = Job("job", "kubernetes", "python", (), 1.0, header=header)
    found = output_registry.of_job(job, Target(NONE, "team"), SETTINGS)
    assert found.image.name == "localhost:5000/a/ciao-output"
    with pytest.raises(SpecError, match="needs a registry, and none is named"):
        output_registry.of_job(replace(job, header=""), Target(NONE, "team"), Settings())


@pytest.mark.parametrize(
    ("registry", "url"),
    [
        ("docker.io/me/x", "https://registry-1.docker.io"),
        ("localhost:5000/x", "http://localhost:5000"),
    ],
)
def test_pods_get_the_address_and_a_dry_run_shows_no_program(registry: str, url: str) -> None:
    spec = replace(SPEC, build=BuildSpec(registry=registry))
    made = output_registry.push(spec, SETTINGS, real=False)
    told = json.loads(made.told)
    assert told["url"] == url
    assert (told["config"], told["authority"]) == ("", "")
    assert made.program == "(a program of ciao)"
    named = replace(spec, build=replace(spec.build, push_secret="mine"))
    told = json.loads(output_registry.push(named, SETTINGS, real=False).told)
    assert told["config"] == "/ciao-registry/config.json"


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (None, "No such file or directory"),
        (b"\xff\xfe", "it is not a PEM file"),
        (b"x" * 70_000, "too large to be given to pods"),
    ],
)
def test_an_authority_that_pods_cannot_get_is_an_error(
    tmp_path: Path, content: bytes | None, why: str
) -> None:
    file = tmp_path / "ca.crt"
    if content is not None:
        file.write_bytes(content)
    settings = replace(SETTINGS, registry_authority=str(file))
    with pytest.raises(EnvironmentFault, match=why):
        output_registry.push(SPEC, settings, real=False)
    plain = replace(SPEC, build=BuildSpec(registry="localhost:5000/x"))
    assert output_registry.push(plain, settings, real=False)


@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        (
            "the registry h refused a.bin: HTTP 413\n",
            "the registry h refused a.bin: HTTP 413.",
            "limit",
        ),
        ("x: HTTP 403", "x: HTTP 403.", "may push to h/a?"),
        ("token server of h refused a token: HTTP 401", "", "may push to h/a?"),
        ("x: HTTP 404", "x: HTTP 404.", "need the repository h/a before"),
        ("x: HTTP 405", "x: HTTP 405.", "%registry="),
        ("the registry h cannot be reached from the pod: timed out", "", "NetworkPolicy"),
        ("", "its container failed.", ""),
        ("Traceback\n  File\nKeyError: 'x'\n", "KeyError: 'x'.", ""),
        ("a\x1b[31mb", "a\\x1b[31mb.", ""),
    ],
)
def test_what_a_pod_says_is_one_sentence_with_what_may_help(
    words: str, message: str, hint: str
) -> None:
    error = pushed_output.refusal(words, reference.parse("h.example/a"))
    assert error.message == message or not message
    assert hint.replace("h/a", "h.example/a") in error.hint
    assert bool(error.hint) is bool(hint)
