"""On bad ground `up` says what is wrong and how to mend it, and changes nothing."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
UP = [sys.executable, "-m", "tests.cluster", "--name", "scratch", "up"]
ALONE = ["unshare", "--mount", "--propagation", "private", "sh", "-ec"]


# They need root themselves: they take away from a shell of theirs what is missing.
pytestmark = pytest.mark.usefixtures("raisable")
second = pytest.mark.second("rig")


def refused(argv: list[str], cache: Path, **options: object) -> str:
    done = subprocess.run(
        argv, cwd=ROOT, capture_output=True, text=True, check=False,
        env=os.environ | {"CIAO_CLUSTER_CACHE": str(cache)}, **options,
    )  # fmt: skip
    assert done.returncode == 1, done.stdout + done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    assert not (cache / "run").exists()
    return done.stderr


@pytest.mark.stands_for("rig")
def test_without_root(tmp_path: Path) -> None:
    # The interpreter may lie in root's home: a user namespace's nobody can still read it.
    said = refused(["unshare", "--user", *UP], tmp_path)
    assert "it needs root: sudo make cluster" in said
    assert "CIAO_TEST_KUBECONFIG" in said


@second
def test_without_room(tmp_path: Path) -> None:
    script = f"mount -t tmpfs -o size=64m tmpfs {tmp_path}; {shlex.join(UP)}"
    said = refused([*ALONE, script], tmp_path)
    assert "0.1 GiB free, and 14 GiB are needed" in said
    assert "CIAO_CLUSTER_CACHE" in said


@second
def test_without_the_network(tmp_path: Path) -> None:
    said = refused(["unshare", "--net", *UP], tmp_path)
    assert "Debian's packages cannot be fetched" in said
    assert "a first build needs the network" in said


@second
def test_without_a_program(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    hidden = Path("/usr/bin/openssl").resolve()
    script = f"mount --bind /dev/null {hidden}; {shlex.join(UP)}"
    said = refused([*ALONE, script], tmp_path)
    assert "missing programs: openssl" in said
    assert "apt-get install openssl" in said


@second
@pytest.mark.parametrize(
    ("version", "toolchain", "fits"),
    [
        ("go1.19.8", "", False),
        ("go1.23.4", "local", False),
        ("go1.21.0", "auto", True),
        ("go1.24.0", "local", True),
        ("devel go1.27-abc", "local", True),
    ],
)
def test_with_a_go(tmp_path: Path, version: str, toolchain: str, fits: bool) -> None:
    go = tmp_path / "go"
    go.write_text(f"#!/bin/sh\nprintf '%s\\n' '{version}' '{toolchain}' 'https://a.test,direct'\n")
    go.chmod(0o755)
    script = f"export PATH={tmp_path}:$PATH; {shlex.join(UP)}"
    said = refused(["unshare", "--net", "sh", "-ec", script], tmp_path / "cache")
    if fits:
        assert "Debian's packages cannot be fetched" in said  # what is looked at next
    else:
        assert f"{version} is too old, and fetches no newer one" in said
        assert "expected go1.24" in said


@second
def test_on_a_file_system_that_holds_no_overlay(tmp_path: Path) -> None:
    lower = tmp_path / "lower"
    for name in ("lower", "upper", "work", "cache"):
        (tmp_path / name).mkdir()
    overlay = f"lowerdir={lower},upperdir={tmp_path}/upper,workdir={tmp_path}/work"
    script = f"mount -t overlay o -o {overlay} {tmp_path}/cache; {shlex.join(UP)}"
    said = refused([*ALONE, script], tmp_path / "cache")
    assert "the kernel lacks overlay file systems here" in said
    assert "must lie on a disk" in said


@second
def test_with_an_address_that_is_taken(tmp_path: Path) -> None:
    script = (
        "ip link set lo up; ip link add other type veth peer name another;"
        f"ip address add 10.200.1.77/24 dev other; {shlex.join(UP)}"
    )
    said = refused(["unshare", "--net", "sh", "-ec", script], tmp_path)
    assert "other has 10.200.1.0/24, which overlaps the cluster's 10.200.1.0/24" in said
