"""Which Python an image has, and what it can import, as told by the names of its files."""

from __future__ import annotations

import pytest

from ciao_kernel.oci.contents import Installed, _of, _over

SLIM = {
    "/usr/local/bin/python3": "python3.13",
    "/usr/local/bin/python": "python3",
    "/usr/local/bin/python3.13": "",
    "/usr/local/lib/python3.13/site-packages/numpy-2.1.info": "",
    "/usr/local/lib/python3.12/site-packages/old-1.0.info": "",
}
DEBIAN = {
    "/usr/bin/python3": "python3.11",
    "/usr/bin/python3.11": "",
    "/usr/lib/python3/dist-packages/six-1.16.0.info": "",
    "/usr/local/lib/python3.11/dist-packages/scikit_learn-1.5.info": "",
}
VENV = {
    "/opt/venv/bin/python": "python3",
    "/opt/venv/bin/python3": "/usr/bin/python3",
    "/opt/venv/pyvenv.cfg": "",
    "/opt/venv/lib/python3.11/site-packages/torch-2.6.info": "",
}
PATH = {"PATH": "/usr/local/bin:/usr/bin:/bin"}


@pytest.mark.parametrize("python", ["python3", "python", "python3.13", "/usr/local/bin/python3"])
def test_an_image_of_python(python: str) -> None:
    assert _of(SLIM, PATH, python) == Installed("3.13", {"numpy": "2.1"})


@pytest.mark.parametrize("path", ["/usr/local/bin:/usr/bin", "/bin", "/usr/bin/"])
def test_debian_with_its_bin_a_link(path: str) -> None:
    expected = Installed("3.11", {"six": "1.16.0", "scikit-learn": "1.5"})

    assert _of(DEBIAN, {"PATH": path}, "python3") == expected
    assert _of(DEBIAN, {}, "/bin/python3") == expected


def test_a_virtual_environment_has_its_own() -> None:
    names = DEBIAN | VENV

    assert _of(names, PATH, "/opt/venv/bin/python") == Installed("3.11", {"torch": "2.6"})
    assert _of(names, {"PATH": "/opt/venv/bin:/usr/bin"}, "python3").packages == {"torch": "2.6"}
    assert "torch" not in _of(names, PATH, "python3").packages
    below = names | {"/opt/venv/pyvenv.cfg": "system"}
    assert set(_of(below, PATH, "/opt/venv/bin/python").packages) == {
        "torch",
        "six",
        "scikit-learn",
    }


def test_what_the_pythonpath_has_comes_first() -> None:
    names = SLIM | {"/opt/ciao/site/numpy-2.2.info": "", "/srv/else-1.info": ""}

    found = _of(names, PATH | {"PYTHONPATH": "/opt/ciao/site/"}, "python3")

    assert found.packages == {"numpy": "2.2"}


def test_alpine() -> None:
    assert _of(SLIM | {"/lib/ld-musl-x86_64.so.1": ""}, PATH, "python3").musl
    assert not _of(SLIM, PATH, "python3").musl


def test_two_pythons_of_which_the_path_tells() -> None:
    names = SLIM | DEBIAN

    assert _of(names, PATH, "python3").python == "3.13"
    assert _of(names, {"PATH": "/usr/bin"}, "python3").python == "3.11"
    assert _of(names, PATH, "python3.11").python == "3.11"


@pytest.mark.parametrize("python", ["python3", "python3.9", "/opt/no/bin/python"])
def test_none_is_found(python: str) -> None:
    assert _of({"/bin/busybox": ""}, PATH, python) == Installed("")
    assert _of(SLIM, PATH, "python3.9") == Installed("")


def test_links_in_a_circle() -> None:
    names = {"/usr/bin/python3": "python", "/usr/bin/python": "python3"}

    assert _of(names, PATH, "python3") == Installed("")


def test_a_script_that_chooses_the_only_python() -> None:
    names = {
        "/root/.pyenv/shims/python3": "",
        "/root/.pyenv/versions/3.12.1/bin/python3.12": "",
        "/root/.pyenv/versions/3.12.1/lib/python3.12/site-packages/six-1.info": "",
    }

    found = _of(names, {"PATH": "/root/.pyenv/shims:/usr/bin"}, "python3")

    assert found == Installed("3.12", {"six": "1"})


def test_what_a_layer_deletes_is_gone() -> None:
    site = "/usr/local/lib/python3.13/site-packages"
    above = {f"{site}/.wh.numpy-2.1.dist-info": "", f"{site}/numpy-2.2.info": ""}

    assert _of(_over(SLIM, above), PATH, "python3").packages == {"numpy": "2.2"}
    opaque = {f"{site}/.wh..wh..opq": ""}
    assert not _of(_over(SLIM, opaque), PATH, "python3").packages
