"""What a command imports before it shows lines of a job on a cluster."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

PACKAGE = "ciao_kernel.backends.kubernetes"


def imported(*modules: str) -> set[str]:
    """What a fresh process imports for these modules of the backend."""
    lines = "".join(f"import {PACKAGE}.{name}\n" for name in ("backend", *modules))
    code = f"{lines}import json, sys; print(json.dumps([*sys.modules]))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    return set(json.loads(ran.stdout))


def below(modules: set[str], *packages: str) -> list[str]:
    return sorted(name for name in modules if f"{name}.".startswith(tuple(packages)))


def test_who_reads_a_log_imports_neither_followers_nor_the_making_of_jobs() -> None:
    found = imported("existing.logs", "lifecycle.retries")
    unwanted = (
        "manifests.manifest",
        "manifests.job_objects",
        "following.follow",
        "lifecycle.resubmission",
        "output.output_sidecar",
        "output.sent_files",
    )
    packages = [f"{PACKAGE}.{name}." for name in unwanted]
    assert below(found, *packages, "ciao_kernel.oci.", "ciao_kernel.delivery.") == []


@pytest.mark.parametrize("module", ["following.follow", "lifecycle.retries"])
def test_who_follows_a_job_imports_no_making_of_jobs_and_no_registry(module: str) -> None:
    found = imported("lifecycle.retries", module)
    unwanted = (
        "manifests.manifest",
        "manifests.job_objects",
        "manifests.pod_template",
        "lifecycle.resubmission",
        "output.sent_files",
        "output.output_registry",
    )
    packages = [f"{PACKAGE}.{name}." for name in unwanted]
    store = "ciao_kernel.delivery.object_store."
    assert below(found, *packages, "ciao_kernel.oci.", store) == []
