"""The package as users get it: built, installed by pip, found by Jupyter, removed again."""

from __future__ import annotations

import json
import os
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from ciao_kernel.commands import kernelspec
from tests.helpers.installed import ROOT, Environment, build
from tests.helpers.once import once

SPEC_FILES = {"kernel.json", "logo-32x32.png", "logo-64x64.png", "logo-svg.svg"}


def files_below(folder: Path) -> set[str]:
    """All files but bytecode, which Python writes when it likes."""
    paths = {path.relative_to(folder) for path in folder.rglob("*") if not path.is_dir()}
    return {str(path) for path in paths if "__pycache__" not in path.parts}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of its own: no test may touch the real user's kernels."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    for name in [name for name in os.environ if "JUPYTER" in name]:
        monkeypatch.delenv(name)
    return home


@pytest.fixture(scope="session")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sdist of a copy of the sources, and the wheel made *from that sdist*."""
    return once(tmp_path_factory, "package", build) / "dist"


@pytest.fixture(scope="session")
def wheel(dist: Path) -> Path:
    (found,) = dist.glob("*.whl")
    return found


def kernelspecs(environment: Environment) -> dict[str, dict]:
    listing = environment.run("-m", "jupyter_client.kernelspecapp", "list", "--json")
    return json.loads(listing)["kernelspecs"]


@pytest.fixture
def environment(tmp_path: Path, home: Path) -> Environment:
    return Environment(tmp_path / "env")


# --- what is built ---------------------------------------------------------------------------


def test_wheel_holds_every_module_and_the_kernelspec(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    modules = {str(path.relative_to(ROOT)) for path in (ROOT / "ciao_kernel").rglob("*.py")}
    assert {name for name in names if name.endswith(".py")} == modules
    assert "ciao_kernel/py.typed" in names
    spec = {name for name in names if "/share/jupyter/kernels/ciao/" in name}
    assert {Path(name).name for name in spec} == SPEC_FILES
    tops = {name.split("/")[0].split("-")[0] for name in names}
    assert tops == {"ciao_kernel"}, "a wheel must not install tests, benchmarks, docs"


def test_sdist_holds_what_its_tests_need(dist: Path) -> None:
    (sdist,) = dist.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"LICENSE", "Makefile", "kernelspec/kernel.json"} <= names
    assert "tests/integration/test_package.py" in names
    assert not [name for name in names if "__pycache__" in name]


# --- pip ---------------------------------------------------------------------------------------


def test_pip_install_makes_the_kernel_known_and_uninstall_leaves_nothing(
    environment: Environment, wheel: Path
) -> None:
    before = files_below(environment.prefix)

    environment.install(wheel)
    spec = kernelspecs(environment)["ciao"]
    assert Path(spec["resource_dir"]).is_relative_to(environment.prefix)
    assert spec["spec"]["display_name"] == "Ciao"
    assert spec["spec"]["argv"][:3] == ["python", "-m", "ciao_kernel"]
    assert (environment.prefix / "bin" / "ciao").is_file()
    module = environment.run("-c", "import ciao_kernel; print(ciao_kernel.__file__)").strip()
    assert Path(module).is_relative_to(environment.packages), "not the wheel's"

    environment.pip("uninstall", "-y", "ciao-kernel")
    assert files_below(environment.prefix) == before
    assert not (environment.prefix / "share/jupyter/kernels/ciao").exists()


def test_functions_work_from_a_wheel(environment: Environment, wheel: Path, home: Path) -> None:
    """The spec's source is where pip put it, also after it was installed over itself."""
    environment.install(wheel)
    before = files_below(environment.prefix)
    program = """
import sys
from ciao_kernel.commands.kernelspec import install, uninstall
print(install(prefix=sys.prefix))
print(install(user=True, name="mine"))
print(*uninstall("mine"))
try:
    uninstall()
except ValueError as error:
    print(error)
"""
    own, user, removed, refusal = environment.run("-c", program).splitlines()
    assert own == str(environment.prefix / "share/jupyter/kernels/ciao")
    assert Path(user).is_relative_to(home)
    assert removed == user
    assert "pip uninstall ciao-kernel" in refusal
    argv = kernelspecs(environment)["ciao"]["spec"]["argv"]
    assert argv[0] == str(environment.python)

    assert files_below(environment.prefix) == before
    environment.pip("uninstall", "-y", "ciao-kernel")
    assert not (environment.prefix / "share/jupyter/kernels/ciao").exists()


# --- install and uninstall, in this environment --------------------------------------------------


def test_install_under_a_prefix(tmp_path: Path) -> None:
    folder = kernelspec.install(prefix=str(tmp_path), name="Second")
    assert folder == tmp_path / "share/jupyter/kernels/second"
    assert {path.name for path in folder.iterdir()} == SPEC_FILES
    spec = json.loads((folder / "kernel.json").read_text())
    assert spec["argv"][0] == sys.executable
    assert spec["argv"][1:3] == ["-m", "ciao_kernel"]
    assert spec["display_name"] == "Ciao (second)"
    assert spec["interrupt_mode"] == "message"

    assert kernelspec.uninstall("second", prefix=str(tmp_path)) == [folder]
    assert not folder.exists()


def test_installed_spec_is_valid_for_jupyter(home: Path) -> None:
    from jupyter_client.kernelspec import KernelSpecManager

    folder = kernelspec.install(user=True, name="ciao-test", display_name="Training")
    assert folder.is_relative_to(home)
    spec = KernelSpecManager().get_kernel_spec("ciao-test")
    assert spec.display_name == "Training"
    assert spec.resource_dir == str(folder)


def test_install_again_replaces(tmp_path: Path) -> None:
    folder = kernelspec.install(prefix=str(tmp_path))
    (folder / "stale").touch()
    assert kernelspec.install(prefix=str(tmp_path)) == folder
    assert {path.name for path in folder.iterdir()} == SPEC_FILES


def test_uninstall_finds_every_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "share/jupyter"))
    made = {kernelspec.install(prefix=str(tmp_path), name="twice")}
    made.add(kernelspec.install(user=True, name="twice"))
    assert set(kernelspec.uninstall("twice")) == made
    with pytest.raises(FileNotFoundError, match="twice"):
        kernelspec.uninstall("twice")


@pytest.mark.parametrize(
    "content", ['{"argv": ["python", "-m", "other"]}', "{", "[]", '{"argv": 1}']
)
def test_another_programs_spec_is_never_touched(tmp_path: Path, content: str) -> None:
    folder = tmp_path / "share/jupyter/kernels/ciao"
    folder.mkdir(parents=True)
    (folder / "kernel.json").write_text(content)
    with pytest.raises(ValueError, match="does not run ciao_kernel"):
        kernelspec.uninstall(prefix=str(tmp_path))
    with pytest.raises(ValueError, match="another kernel"):
        kernelspec.install(prefix=str(tmp_path))
    assert (folder / "kernel.json").read_text() == content


def test_a_refused_name_is_freed_by_the_command_that_the_message_has(home: Path) -> None:
    """Notebooks of the first ciao name the kernel kubeflow, and its spec is still there."""
    from jupyter_client.kernelspec import KernelSpecManager

    spec = home / ".local/share/jupyter/kernels/kubeflow/kernel.json"
    spec.parent.mkdir(parents=True)
    spec.write_text('{"argv": ["kubeflow-kernel", "{connection_file}"]}')
    with pytest.raises(ValueError, match=r"; choose another name, or remove it by `(.*)`$") as said:
        kernelspec.install(user=True, name="kubeflow")
    assert str(said.value).endswith("`jupyter kernelspec remove kubeflow`")
    KernelSpecManager().remove_kernel_spec("kubeflow")  # what the command does
    assert kernelspec.install(user=True, name="kubeflow") == spec.parent


def test_no_command_is_named_that_would_remove_another_spec(tmp_path: Path, home: Path) -> None:
    kernelspec.install(user=True, name="mine")
    other = tmp_path / "share/jupyter/kernels/mine"
    other.mkdir(parents=True)
    with pytest.raises(ValueError, match=r"another kernel; choose another name$"):
        kernelspec.install(prefix=str(tmp_path), name="mine")


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "../up", "two words", "ciào", "a\n"])
def test_bad_names(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="cannot be a kernel's name"):
        kernelspec.install(prefix=str(tmp_path), name=name)
    with pytest.raises(ValueError, match="cannot be a kernel's name"):
        kernelspec.uninstall(name, prefix=str(tmp_path))


def test_user_and_prefix_exclude_each_other(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not both"):
        kernelspec.install(user=True, prefix=str(tmp_path))
    with pytest.raises(ValueError, match="empty"):
        kernelspec.install(prefix="")


def test_unwritable_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # By a stand-in for the copy, since root may write anywhere.
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", "/the/place")

    from jupyter_client.kernelspec import KernelSpecManager

    monkeypatch.setattr(KernelSpecManager, "install_kernel_spec", refuse)
    with pytest.raises(PermissionError, match=r"^/the/place cannot be written$"):
        kernelspec.install(prefix=str(tmp_path))
    assert not list(tmp_path.glob("share/**/kernel.json"))
