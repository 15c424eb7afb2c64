"""For which machines wheels are taken."""

from __future__ import annotations

import pytest

from ciao_kernel.builders.target import Target


@pytest.mark.parametrize(
    ("architecture", "machine"),
    [
        ("amd64", "x86_64"),
        ("arm64", "aarch64"),
        ("arm", "armv7l"),
        ("ppc64le", "ppc64le"),
        ("riscv64", "riscv64"),
        ("s390x", "s390x"),
        ("loong64", "loongarch64"),
    ],
)
def test_each_architecture_of_the_setting_has_its_name_in_python(
    architecture: str, machine: str
) -> None:
    target = Target("3.13", architecture, {}, glibc=36)
    assert target.markers["platform_machine"] == machine
    assert target.platforms[0] == f"manylinux_2_36_{machine}"
    assert target.platforms[-1] == f"linux_{machine}"


def test_an_old_glibc_gets_no_wheels_for_newer_ones() -> None:
    old, enough = (Target("3.8", "amd64", {}, glibc=minor).platforms for minor in (12, 17))
    assert "manylinux2014_x86_64" in enough
    assert (old[0], old[-2:]) == (
        "manylinux_2_12_x86_64",
        ["manylinux_2_5_x86_64", "linux_x86_64"],
    )


def test_a_glibc_that_is_not_known_is_told() -> None:
    target = Target("3.13", "amd64", {})
    assert target.platforms[0] == "manylinux_2_28_x86_64"
    assert target.assumed == " for glibc 2.28 and older"
    assert not Target("3.13", "amd64", {}, glibc=36).assumed
    musl = Target("3.13", "amd64", {}, musl=True)
    assert (musl.assumed, musl.platforms[0]) == ("", "musllinux_1_2_x86_64")
