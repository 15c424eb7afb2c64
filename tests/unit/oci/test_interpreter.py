"""The Python that an image starts, and its packages, as told by the names of its files."""

from __future__ import annotations

import pytest

from ciao_kernel.oci.interpreter import Installed, choose

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
    assert choose(SLIM, PATH, python) == Installed("3.13", {"numpy": "2.1"})


@pytest.mark.parametrize("path", ["/usr/local/bin:/usr/bin", "/bin", "/usr/bin/"])
def test_debian_with_its_bin_a_link(path: str) -> None:
    expected = Installed("3.11", {"six": "1.16.0", "scikit-learn": "1.5"})

    assert choose(DEBIAN, {"PATH": path}, "python3") == expected
    assert choose(DEBIAN, {}, "/bin/python3") == expected


def test_a_virtual_environment_has_its_own() -> None:
    names = DEBIAN | VENV

    assert choose(names, PATH, "/opt/venv/bin/python") == Installed("3.11", {"torch": "2.6"})
    assert choose(names, {"PATH": "/opt/venv/bin:/usr/bin"}, "python3").packages == {"torch": "2.6"}
    assert "torch" not in choose(names, PATH, "python3").packages
    below = names | {"/opt/venv/pyvenv.cfg": "system"}
    assert set(choose(below, PATH, "/opt/venv/bin/python").packages) == {
        "torch",
        "six",
        "scikit-learn",
    }


@pytest.mark.parametrize(
    ("search", "packages"),
    [
        ("/opt/python/current/bin", {"numpy": "2.5"}),
        ("/venvs/current/bin/:/usr/bin", {"torch": "2.6"}),
        ("/bin:/venvs/current/bin:/opt/python/current/bin", {"torch": "2.6"}),
        ("/srv/tools/app/bin", None),
    ],
)
@pytest.mark.parametrize("made_by", ["3.11.9", "current"])
def test_a_path_through_the_link_of_a_folder(
    search: str, packages: dict[str, str] | None, made_by: str
) -> None:
    """The layers name files only by their own folders: ``current -> 3.11.9``."""
    names = {
        "/opt/python/3.11.9/bin/python3": "python3.11",
        "/opt/python/3.11.9/bin/python3.11": "",
        "/opt/python/3.11.9/lib/python3.11/site-packages/numpy-2.5.info": "",
        "/venvs/app-1/bin/python3.11": f"/opt/python/{made_by}/bin/python3.11",
        "/venvs/app-1/pyvenv.cfg": "",
        "/venvs/app-1/lib/python3.11/site-packages/torch-2.6.info": "",
    }
    expected = Installed("") if packages is None else Installed("3.11", packages)
    assert choose(names, {"PATH": search}, "python3") == expected


def test_what_the_pythonpath_has_comes_first() -> None:
    names = SLIM | {"/opt/ciao/site/numpy-2.2.info": "", "/srv/else-1.info": ""}

    found = choose(names, PATH | {"PYTHONPATH": "/opt/ciao/site/"}, "python3")

    assert found.packages == {"numpy": "2.2"}


def test_alpine() -> None:
    assert choose(SLIM | {"/lib/ld-musl-x86_64.so.1": ""}, PATH, "python3").musl
    assert not choose(SLIM, PATH, "python3").musl


@pytest.mark.parametrize(
    ("names", "glibc"),
    [
        ({"/usr/lib/x86_64-linux-gnu/libc.so.6": "2.36"}, 36),
        ({"/lib/x86_64-linux-gnu/libc.so.6": "libc-2.31.so"}, 31),
        ({"/lib64/libc.so.6": "/lib64/libc-2.28.so"}, 28),
        ({"/usr/lib64/libc.so.6": "2.34", "/usr/lib/libc.so.6": "2.33"}, 33),
        ({"/usr/lib/libc.so.6": ""}, 0),
        ({"/opt/conda/sysroot/lib64/libc.so.6": "2.17"}, 0),
        ({"/usr/aarch64-linux-gnu/lib/libc.so.6": "2.17"}, 0),
    ],
)
def test_the_c_library_tells_its_version(names: dict[str, str], glibc: int) -> None:
    assert choose(SLIM | names, PATH, "python3").glibc == glibc
    assert choose(names, PATH, "python3").glibc == glibc


def test_two_pythons_of_which_the_path_tells() -> None:
    names = SLIM | DEBIAN

    assert choose(names, PATH, "python3").python == "3.13"
    assert choose(names, {"PATH": "/usr/bin"}, "python3").python == "3.11"
    assert choose(names, PATH, "python3.11").python == "3.11"


@pytest.mark.parametrize("python", ["python3", "python3.9", "/opt/no/bin/python"])
def test_none_is_found(python: str) -> None:
    assert choose({"/bin/busybox": ""}, PATH, python) == Installed("")
    assert choose(SLIM, PATH, "python3.9") == Installed("")


def test_links_in_a_circle() -> None:
    names = {"/usr/bin/python3": "python", "/usr/bin/python": "python3"}

    assert choose(names, PATH, "python3") == Installed("")


def test_update_alternatives_choose_the_older_of_two() -> None:
    names = DEBIAN | {
        "/usr/bin/python3": "/etc/alternatives/python3",
        "/etc/alternatives/python3": "/usr/bin/python3.11",
        "/usr/bin/python3.12": "",
        "/usr/local/lib/python3.12/dist-packages/torch-2.6.info": "",
    }

    found = choose(names, PATH, "python3")

    assert found == Installed("3.11", {"six": "1.16.0", "scikit-learn": "1.5"})


def test_altinstall_leaves_the_command_to_another() -> None:
    """``make altinstall`` makes python3.12 and no python3."""
    names = DEBIAN | {"/usr/local/bin/python3.12": ""}

    assert choose(names, PATH, "python3").python == "3.11"
    assert choose(names, PATH, "python3.12").python == "3.12"


PYENV = DEBIAN | {
    "/root/.pyenv/shims/python3": "",
    "/root/.pyenv/shims/python3.12": "",
    "/root/.pyenv/versions/3.12.1/bin/python3": "python3.12",
    "/root/.pyenv/versions/3.12.1/bin/python3.12": "",
    "/root/.pyenv/versions/3.12.1/lib/python3.12/site-packages/six-1.info": "",
}
SHIMS = {"PATH": "/root/.pyenv/shims:/usr/bin"}
SELECTED = {"/root/.pyenv/version": "3.12.1"}
OWN = Installed("3.12", {"six": "1"})
SYSTEM = Installed("3.11", {"six": "1.16.0", "scikit-learn": "1.5"})


@pytest.mark.parametrize("python", ["python3", "python3.12", "/root/.pyenv/shims/python3"])
@pytest.mark.parametrize("selected", ["3.12.1", "3.12", "3.9:3.12.1"])
def test_a_shim_starts_the_selected_version(python: str, selected: str) -> None:
    names = PYENV | {"/root/.pyenv/version": selected}

    assert choose(names, SHIMS, python) == OWN


def test_a_variable_selects_before_the_file() -> None:
    names = PYENV | SELECTED

    assert choose(names, SHIMS | {"PYENV_VERSION": "system"}, "python3") == SYSTEM
    assert choose(PYENV, SHIMS | {"PYENV_VERSION": "3.12.1"}, "python3") == OWN


def test_the_exact_version_is_selected_among_several() -> None:
    other = "/root/.pyenv/versions/3.12.1.2/bin/python3"
    names = PYENV | SELECTED | {other: "python3.12", other + ".12": ""}

    assert choose(names, SHIMS, "python3") == OWN


@pytest.mark.parametrize("python", ["python3", "python3.12"])
def test_a_shim_whose_selection_is_unknown(python: str) -> None:
    assert choose(PYENV, SHIMS, python) == Installed("")
    alone = {path: to for path, to in PYENV.items() if path not in DEBIAN}
    assert choose(alone, SHIMS, python) == OWN


USER = "/lib/python3.13/site-packages/numpy-2.3.info"


@pytest.mark.parametrize(
    ("base", "env", "user"),
    [
        ("/opt/app-root", {"PYTHONUSERBASE": "/opt/app-root/"}, "1001"),
        ("/root/.local", {}, ""),
        ("/root/.local", {}, "0:0"),
        ("/home/ada/.local", {}, "ada:staff"),
        ("/srv/.local", {"HOME": "/srv"}, "1001"),
    ],
)
def test_packages_of_one_user_come_first(base: str, env: dict[str, str], user: str) -> None:
    names = SLIM | {base + USER: ""}

    assert choose(names, PATH | env, "python3", user).packages == {"numpy": "2.3"}
    none = PATH | env | {"PYTHONNOUSERSITE": "1"}
    assert choose(names, none, "python3", user).packages == {"numpy": "2.1"}


def test_packages_of_another_user_are_not_seen() -> None:
    names = SLIM | {"/home/ada/.local" + USER: ""}

    for user in ("", "1001", "eve"):
        assert choose(names, PATH, "python3", user).packages == {"numpy": "2.1"}


def test_a_virtual_environment_does_without_packages_of_one_user() -> None:
    user = "/root/.local/lib/python3.11/site-packages/torch-2.5.info"
    names = DEBIAN | VENV | {user: "", user.replace("torch", "numpy"): ""}

    assert choose(names, PATH, "/opt/venv/bin/python").packages == {"torch": "2.6"}
    below = names | {"/opt/venv/pyvenv.cfg": "system"}
    found = choose(below, PATH, "/opt/venv/bin/python").packages
    assert (found["torch"], found["numpy"]) == ("2.6", "2.5")
