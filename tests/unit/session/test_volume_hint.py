"""A program that may not write to a volume: the remedy names the volume."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ciao_kernel.model import Job
from ciao_kernel.session.failure.volume_hint import volume_hint

HEADER = (
    "%framework=tensorflow\n%volume=data/2024:input:ro team:/runs host:/srv:/srv\n"
    "%checkpoint=kept\n"
)
JOB = Job(
    name="mnist",
    backend="kubernetes",
    framework="tensorflow",
    replicas=(),
    created=0.0,
    place="team",
    kind_of_place="namespace",
    root="/ciao/work",
    header=HEADER,
)


@pytest.mark.parametrize(
    ("said", "hint"),
    [
        ("PermissionError: [Errno 13] Permission denied: '/runs/one'", "the volume team in /runs."),
        ("chown: Operation not permitted: '/runs/one'", "the volume team in /runs."),
        ("Permission denied '/runs/one'", "the volume team in /runs."),
        (
            "Permission denied: '/runs/one'\nPermission denied: '/etc/x'",
            "the volume team in /runs.",
        ),
        ("Permission denied: '/srv/x'", "the volume host:/srv in /srv."),
        ('mkdir: Permission denied: "checkpoint/x"', "the claim of %checkpoint in checkpoint."),
        ("OSError: [Errno 30] Read-only file system: 'input/new'", "in input can only be read:"),
        ("[Errno 30] Read-only file system: '/ciao/work/input'", "leave out :ro"),
    ],
)
def test_the_volume_is_named(said: str, hint: str) -> None:
    assert hint in volume_hint(f"Traceback:\n{said}", JOB)


def test_the_volume_of_the_replicas_role_is_named() -> None:
    header = "%framework=tensorflow\n%ps=1;%volume=a:x\n%worker=2;%volume=b:x\n"
    job, said = replace(JOB, header=header), "Permission denied: 'x/one'"
    assert "the volume a in x" in volume_hint(said, job, "ps")
    assert "the volume b in x" in volume_hint(said, job, "worker")
    assert volume_hint(said, job, "chief") == ""


@pytest.mark.parametrize(
    "said",
    [
        "PermissionError: [Errno 13] Permission denied: '/etc/shadow'",
        "PermissionError: [Errno 13] Permission denied: 'inputs/new'",
        "PermissionError: [Errno 13] Permission denied: '/runs/../etc/x'",
        "Permission denied (publickey).",
    ],
)
def test_other_places_have_no_such_remedy(said: str) -> None:
    assert volume_hint(said, JOB) == ""


def test_the_last_denial_counts_and_this_machine_has_its_own_words() -> None:
    said = "Permission denied: '/runs/a'\nRead-only file system: 'input/b'\n"
    assert "can only be read" in volume_hint(said, JOB)
    here = Job(
        name="mnist",
        backend="local",
        framework="tensorflow",
        replicas=(),
        created=0.0,
        place="/runs",
        header=HEADER,
    )
    assert volume_hint("Permission denied: '/runs/a'", here) == ""


@pytest.mark.parametrize(
    ("header", "named"),
    [("%checkpoint\n", True), ("%checkpoint=a?b=c\n", True), ("%framework=jax\n", False)],
)
def test_a_claim_for_checkpoints_is_named_where_the_job_has_one(header: str, named: bool) -> None:
    found = volume_hint("Permission denied: 'checkpoint/x'", replace(JOB, header=header))
    assert bool(found) == named
