"""Packages for another Python than this one, from a real index, by the real pip."""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from ciao_kernel.builders import pip_for_target, wheels
from ciao_kernel.builders.wheels import NoWheel, Target, Wheels
from ciao_kernel.delivery.packages.requirements import read
from ciao_kernel.errors import EnvironmentFault, SourceError
from ciao_kernel.model import BuildSpec
from tests.helpers.jobs import interrupted, wait
from tests.helpers.packages import Index, serving, source, wheel


class Kernel:
    """What asks for packages; remembers what it was told."""

    def __init__(self, index: Index, folder: Path) -> None:
        self.index, self.folder, self.cache = index, folder, folder / "cache"
        self.said: list[str] = []

    async def bring(self, *packages: str, file: str = "", **target: Any) -> Wheels:
        (self.folder / "requirements.txt").write_text(file)
        named = "requirements.txt" if file else None
        url = target.pop("index", self.index.url)
        spec = BuildSpec(packages=packages, requirements=named, pip_index=url)
        known = {"python": "3.8", "architecture": "arm64", "packages": {}, **target}
        return await wheels.download(
            read(spec, self.folder), Target(**known), self.cache, self.said.append
        )

    def run(self, *packages: str, **more: Any) -> Wheels:
        return asyncio.run(self.bring(*packages, **more))


@pytest.fixture
def kernel(index: Index, tmp_path: Path) -> Kernel:
    return Kernel(index, tmp_path)


def test_what_the_image_lacks_is_brought(kernel: Kernel, index: Index) -> None:
    index.add("app", "1.0", "lib>=1", "other")
    for version in ("1.0", "1.5", "2.0"):
        index.add("lib", version)
    index.add("other", "1.0")

    # This version of lib is on no index.
    found = kernel.run("app", packages={"lib": "1.2+own", "pip": "1.0", "odd": "UNKNOWN"})

    assert found.names == ("app==1.0", "other==1.0")
    assert not found.replaced
    assert {path.name for path in found.folder.iterdir()} >= {"app", "other"}
    assert not (found.folder / "lib").exists()


def test_another_version_than_the_images_is_told(kernel: Kernel, index: Index) -> None:
    index.add("app", "1.0", "lib>=2")
    index.add("lib", "2.0")

    found = kernel.run("app", packages={"lib": "1.0"})

    assert found.names == ("app==1.0", "lib==2.0")
    assert found.replaced == ("lib 1.0 by 2.0",)


def test_nothing_is_brought_where_all_is_there(kernel: Kernel, index: Index) -> None:
    index.add("app", "1.0")

    assert not kernel.run("app", packages={"app": "1.0"}).names
    assert not any(path.startswith("/files/") for path in index.asked)


@pytest.mark.parametrize(
    ("wish", "names"),
    [
        ("app", ("app==1.0",)),
        ("app tensorflow", ("app==1.0", "tensorflow==2.21.0")),
        ("older", ("older==1.0", "tensorflow==2.20.0")),
    ],
)
def test_a_package_for_tensorflow_takes_the_smaller_one_of_the_image(
    kernel: Kernel, index: Index, wish: str, names: tuple[str, ...]
) -> None:
    index.add("app", "1.0", "tensorflow<2.22,>=2.21")
    index.add("older", "1.0", "tensorflow<2.21")
    for version in ("2.20.0", "2.21.0"):
        index.add("tensorflow", version)
    assert kernel.run(*wish.split(), packages={"tensorflow-cpu": "2.21.0"}).names == names


def test_markers_mean_the_images_python(kernel: Kernel, index: Index) -> None:
    index.add(
        "app",
        "1.0",
        "old; python_version < '3.9'",
        "new; python_version >= '3.9'",
        "arm; platform_machine == 'aarch64'",
        "mac; sys_platform == 'darwin'",
        "patch; python_full_version >= '3.8.1' or implementation_version >= '3.9'",
    )
    for name in ("old", "new", "arm", "mac", "patch"):
        index.add(name, "1.0")

    assert kernel.run("app").names == ("app==1.0", "arm==1.0", "old==1.0")


def test_a_pip_that_evaluates_markers_in_another_way_is_refused(
    kernel: Kernel, index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    index.add("app", "1.0")
    own = kernel.folder / "elsewhere.py"
    own.write_text(
        Path(pip_for_target.__file__).read_text().replace("    _become(python", "    (python")
    )
    monkeypatch.setattr(pip_for_target, "__file__", str(own))

    with pytest.raises(EnvironmentFault, match=r"instead of '3\.8\.0'") as raised:
        kernel.run("app")

    assert "pip" in raised.value.hint
    assert not list(kernel.cache.glob("chosen/*.json"))


def test_a_file_with_hashes(kernel: Kernel, index: Index) -> None:
    index.add("app", "1.0", "lib", "have", "base[more]")
    index.add("lib", "1.0")
    index.add("base", "1.0", "dep; extra == 'more'\nProvides-Extra: more")
    index.add("dep", "1.0")
    digests = {
        name.partition("-")[0]: hashlib.sha256(raw).hexdigest() for name, raw in index.files.items()
    }
    lines = [f"{name}==1.0 \\\n    --hash=sha256:{digest}" for name, digest in digests.items()]
    image = {"have": "1.0", "base": "1.0"}

    for option in ("", "--require-hashes\n"):
        found = kernel.run(file=option + "\n".join(lines), packages=image)
        assert found.names == ("app==1.0", "dep==1.0", "lib==1.0")
    assert not [text for text in kernel.said if not text.startswith("downloading")]

    index.add("lib", "1.0", code="changed")
    shutil.rmtree(kernel.cache)
    with pytest.raises(SourceError, match="DO NOT MATCH THE HASHES"):
        kernel.run(file="\n".join(lines), packages=image)


def test_wheels_are_those_of_the_platform(kernel: Kernel, index: Index) -> None:
    index.add("app", "1.0", tag="cp38-cp38-manylinux2014_aarch64", code="which = 'glibc'")
    index.add("app", "1.0", tag="cp38-cp38-musllinux_1_1_aarch64", code="which = 'musl'")
    index.add("app", "1.0", tag="cp38-cp38-macosx_11_0_arm64", code="which = 'mac'")

    for musl in (False, True):
        found = kernel.run("app", musl=musl)
        assert ("'musl'" if musl else "'glibc'") in code(found)


@pytest.mark.parametrize("glibc", [18, 23, 26])
def test_wheels_of_an_older_glibc_run_too(kernel: Kernel, index: Index, glibc: int) -> None:
    """NVIDIA's NCCL is for glibc 2.18, which has no name of its own among pip's usual ones."""
    index.add("app", "1.0", tag=f"py3-none-manylinux_2_{glibc}_aarch64")
    assert kernel.run("app").names == ("app==1.0",)


def test_wheels_are_no_newer_than_the_glibc_of_the_image(kernel: Kernel, index: Index) -> None:
    for version, glibc in (("1.0", 17), ("2.0", 28), ("3.0", 34), ("4.0", 38)):
        index.add("app", version, tag=f"py3-none-manylinux_2_{glibc}_aarch64")
    for known, version in ((0, "2.0"), (36, "3.0"), (41, "4.0"), (27, "1.0")):
        assert kernel.run("app", glibc=known).names == (f"app=={version}",)


def test_a_variable_of_the_environment_is_part_of_the_choice(
    kernel: Kernel, index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    for version in ("1.0", "2.0"):
        index.add("lib", version)
        monkeypatch.setenv("LIB_VERSION", version)
        assert kernel.run(file="lib==${LIB_VERSION}\n").names == (f"lib=={version}",)


def test_the_second_time_nobody_is_asked(kernel: Kernel, index: Index) -> None:
    index.add("app", "1.0")
    first = kernel.run("app")
    index.add("app", "2.0")
    index.asked.clear()

    assert kernel.run("app") == first
    assert not index.asked


def code(found: Wheels, name: str = "app") -> str:
    return (found.folder / name / "__init__.py").read_text()


@pytest.mark.second("packages")
def test_a_choice_that_cannot_be_had_any_more_is_made_anew(kernel: Kernel, index: Index) -> None:
    """As after an interrupt in a download: the versions are chosen, and none of them is here."""
    index.add("app", "1.0", code="original")
    first = kernel.run("app")
    index.add("app", "1.0", code="changed")
    shutil.rmtree(first.folder)

    second = kernel.run("app")

    assert "changed" in code(second)
    assert any("choosing again" in text for text in kernel.said)
    index.files.clear()
    index.add("app", "2.0")
    shutil.rmtree(second.folder)
    assert kernel.run("app").names == ("app==2.0",)


@pytest.mark.second("packages")
def test_a_choice_stays_while_the_index_is_away(kernel: Kernel, index: Index) -> None:
    index.add("app", "1.0")
    first = kernel.run("app")
    shutil.rmtree(first.folder)
    index.password = "hunter2"

    with pytest.raises(SourceError, match="requires authentication"):
        kernel.run("app")

    index.password = ""
    index.add("app", "2.0")
    assert kernel.run("app") == first


def test_a_choice_that_is_damaged_is_made_anew(kernel: Kernel, index: Index) -> None:
    index.add("app", "1.0")
    first = kernel.run("app")
    for path in kernel.cache.glob("chosen/*.json"):
        path.write_text("[[")

    assert kernel.run("app") == first


@pytest.mark.second("packages")
def test_wheels_of_a_folder_may_change(kernel: Kernel) -> None:
    folder = kernel.folder / "my wheels"
    folder.mkdir()
    found = []
    for version, text in ("0.1", "one"), ("0.1", "other"), ("0.2", "three"):
        name, raw = wheel("mylib", version, text)
        (folder / name).write_bytes(raw)
        found.append(kernel.run(file="--find-links 'my wheels'\nmylib\n"))

    assert [one.names for one in found] == [("mylib==0.1",), ("mylib==0.1",), ("mylib==0.2",)]
    assert ["one" in code(found[0], "mylib"), "other" in code(found[1], "mylib")] == [True, True]


@pytest.mark.second("packages")
def test_settings_of_pip_may_change(
    kernel: Kernel, index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    index.add("app", "1.0")
    with serving() as other:
        other.add("app", "2.0")
        found = []
        for address in (index.url, other.url):
            monkeypatch.setenv("PIP_INDEX_URL", address)
            found.append(kernel.run("app", index="").names)
        for address in (index.url, other.url):
            (kernel.folder / "pip.conf").write_text(f"[global]\nindex-url = {address}\n")
            monkeypatch.delenv("PIP_INDEX_URL", raising=False)
            monkeypatch.setenv("PIP_CONFIG_FILE", str(kernel.folder / "pip.conf"))
            found.append(kernel.run("app", index="").names)

    assert found == [("app==1.0",), ("app==2.0",)] * 2


def test_packages_go_to_no_other_place(
    kernel: Kernel, index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    index.add("app", "1.0")
    (kernel.folder / "pip.conf").write_text("[global]\nprefix = /opt/x\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(kernel.folder / "pip.conf"))

    with pytest.raises(EnvironmentFault, match=r"prefix = /opt/x in .*/pip\.conf"):
        kernel.run("app")
    assert not index.asked


def test_the_settings_of_the_kernels_own_environment_count(
    kernel: Kernel, index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`pip config --site` writes them; some Pythons forget their environment without ``site``."""
    index.add("app", "1.0")
    (kernel.folder / "pip.conf").write_text(f"[global]\nindex-url = {index.url}\n")
    monkeypatch.setattr(sys, "prefix", str(kernel.folder))
    monkeypatch.delenv("PIP_CONFIG_FILE")
    monkeypatch.setenv("HOME", str(kernel.folder / "home"))

    assert kernel.run("app", index="").names == ("app==1.0",)


@pytest.mark.parametrize("setting", ["extra-index-url = {url}", "find-links = {folder}"])
@pytest.mark.parametrize("more", ["", "no-index = true"])
def test_the_index_of_a_cell_is_the_only_source(
    kernel: Kernel, index: Index, monkeypatch: pytest.MonkeyPatch, setting: str, more: str
) -> None:
    index.add("app", "1.0")
    name, raw = wheel("app", "2.0")
    (kernel.folder / name).write_bytes(raw)
    with serving() as other:
        other.add("app", "2.0")
        line = setting.format(url=other.url, folder=kernel.folder)
        (kernel.folder / "pip.conf").write_text(f"[global]\n{more}\n[install]\n{line}\n")
        monkeypatch.setenv("PIP_CONFIG_FILE", str(kernel.folder / "pip.conf"))

        assert kernel.run("app").names == ("app==1.0",)
        assert not other.asked


@pytest.mark.parametrize("setting", ["index-url", "extra-index-url"])
def test_the_password_of_a_cells_index_is_in_the_configuration(
    kernel: Kernel, index: Index, monkeypatch: pytest.MonkeyPatch, setting: str
) -> None:
    index.add("app", "1.0")
    index.password = "hunter2"
    address = index.url.replace("://", "://jane:hunter2@")
    (kernel.folder / "pip.conf").write_text(f"[global]\n{setting} = {address}\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(kernel.folder / "pip.conf"))

    assert kernel.run("app").names == ("app==1.0",)
    kept = [path for path in kernel.folder.rglob("*") if path.is_file() and path.name != "pip.conf"]
    assert not any(b"hunter2" in path.read_bytes() for path in kept)


@pytest.mark.second("packages")
def test_an_extra_of_what_the_image_has_brings_what_it_needs(kernel: Kernel, index: Index) -> None:
    needs = (
        "must",
        "too; platform_release != 'extra'",
        "old; extra == 'more' and python_version >= '3.9'",
        "dep; extra == 'more'\nProvides-Extra: more",
    )
    index.add("base", "1.0", *needs)
    index.add("base", "2.0", *needs)
    index.add("top", "1.0", "base[more]")
    for name in ("must", "too", "old", "dep"):
        index.add(name, "1.0")

    # What the package itself needs is the image's business.
    assert kernel.run("base[more]", packages={"base": "1.0"}).names == ("dep==1.0",)
    assert kernel.run("base[more]", packages={"base": "1.0+own"}).names == ("dep==1.0",)
    assert kernel.run("top", packages={"base": "1.0"}).names == ("dep==1.0", "top==1.0")
    assert kernel.run("base[more]>1", packages={"base": "1.0", "must": "1", "too": "1"}).names == (
        "base==2.0",
        "dep==1.0",
    )
    assert not kernel.said[0].startswith("base")


@pytest.mark.second("packages")
def test_pip_may_write_long_lines_and_colours(
    kernel: Kernel, index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, extra = "a_package_of_a_very_long_name" * 3, "an-extra-of-a-very-long-name" * 3
    index.add(name, "1.0", f"dep; extra == '{extra}'\nProvides-Extra: {extra}")
    index.add("dep", "1.0")
    monkeypatch.setenv("FORCE_COLOR", "1")

    found = kernel.run(f"{name}[{extra}]", packages={name.replace("_", "-"): "1.0"})

    assert found.names == ("dep==1.0",)


@pytest.mark.second("packages")
def test_an_extra_that_nobody_knows_is_told(kernel: Kernel, index: Index) -> None:
    index.add("base", "2.0")

    kernel.run("base[more]", packages={"base": "1.0"})
    assert kernel.said == [
        "the image has base 1.0, which is not in the package index: the dependencies of base[more] "
        "are unknown. Name those packages as well."
    ]
    kernel.said.clear()
    kernel.run("base[more]", packages={"base": "2.0"})
    kernel.run("base[other]")
    assert kernel.said[0] == "base 2.0 has no extra more."
    assert kernel.said[1] == "base has no extra other."


def test_two_at_once_bring_it_once(kernel: Kernel, index: Index) -> None:
    index.add("app", "1.0")

    async def both() -> list[Wheels]:
        return await asyncio.gather(kernel.bring("app"), kernel.bring("app"))

    first, second = asyncio.run(both())

    assert first == second
    assert sum(text.startswith("downloading") for text in kernel.said) == 1
    assert (first.folder / "app").is_dir()


def test_options_and_files_of_a_file_are_honoured(kernel: Kernel, index: Index) -> None:
    index.add("app", "1.0rc1")
    index.add("lib", "1.0")
    index.add("lib", "2.0")
    (kernel.folder / "more.txt").write_text("lib  # any\n")
    (kernel.folder / "held.txt").write_text("lib<2\n")

    found = kernel.run(file="--pre\n-i http://127.0.0.1:1/\napp\n-r more.txt\n-c held.txt\n")

    assert found.names == ("app==1.0rc1", "lib==1.0")


@pytest.mark.parametrize(
    "wish",
    [
        "sdist",
        "absent==3",
        "app @ git+https://example.com/app",
        "app @ hg+https://example.com/app",
        "app @ https://example.com/app-1.tar",
        "exact>2",
    ],
)
def test_what_has_no_wheel(kernel: Kernel, index: Index, wish: str) -> None:
    index.files["sdist-1.0.tar.gz"] = b"source"
    index.add("exact", "1.0")

    with pytest.raises(NoWheel) as raised:
        kernel.run(wish)

    assert str(raised.value).startswith(wish.partition(" ")[0])


@pytest.mark.parametrize("how", ["of a dependency", "of a line", "of a constraint", "of an index"])
def test_no_code_of_a_package_runs_here(kernel: Kernel, index: Index, how: str) -> None:
    """A source is built by its own program. That of a package for a pod never runs here."""
    ran = kernel.folder / "ran"
    index.files["evil-1.0.tar.gz"] = source("evil", "1.0", f"open({str(ran)!r}, 'w')")
    address = index.url.replace("/simple", "/files/evil-1.0.tar%2Egz")
    index.files["evil-1.0.tar%2Egz"] = index.files["evil-1.0.tar.gz"]
    index.add("app", "1.0", f"evil @ {address}" if how == "of a dependency" else "evil")
    (kernel.folder / "held.txt").write_text(f"evil @ {address}\n")
    file = {
        "of a line": f"evil @ {address}\n",
        "of a constraint": "evil\n-c held.txt\n",
        "of an index": "--only-binary=:none:\nevil\n",
    }.get(how, "app\n")

    with pytest.raises(NoWheel) as raised:
        kernel.run(file=file)

    assert not ran.exists()
    assert raised.value.wish.startswith("evil")
    assert raised.value.by == ("app" if how == "of a dependency" else "")


def test_a_conflict_is_explained(kernel: Kernel, index: Index) -> None:
    index.add("app", "1.0", "lib==1.0")
    index.add("lib", "1.0")
    index.add("lib", "2.0")

    with pytest.raises(SourceError, match=r"not compatible: .*app 1\.0 depends on lib==1\.0"):
        kernel.run("app", "lib==2.0")

    assert any("lib==1.0" in text for text in kernel.said)


def test_an_index_that_is_away(kernel: Kernel, index: Index) -> None:
    index.server_close()
    index.shutdown()

    with pytest.raises(SourceError, match="does not answer"):
        kernel.run("app")


def test_an_index_that_asks_who(
    kernel: Kernel, index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    index.add("app", "1.0")
    index.password = "hunter2"

    with pytest.raises(SourceError, match="requires authentication"):
        kernel.run("app")

    netrc = kernel.folder / "netrc"
    netrc.write_text("machine 127.0.0.1 login jane password hunter2\n")
    monkeypatch.setenv("NETRC", str(netrc))
    found = kernel.run("app")
    assert found.names == ("app==1.0",)
    kept = [path for path in kernel.cache.rglob("*") if path.is_file()]
    assert kept
    assert not any(b"hunter2" in path.read_bytes() for path in kept)
    assert "hunter2" not in "".join(kernel.said)


def test_an_interrupt_leaves_nothing(kernel: Kernel, index: Index) -> None:
    index.add("app", "1.0")
    index.stall.clear()

    async def main() -> None:
        work = asyncio.ensure_future(kernel.bring("app"))
        await wait(index.stalled.is_set)
        await interrupted(work)
        index.stall.set()
        assert (await kernel.bring("app")).names == ("app==1.0",)

    asyncio.run(main())
    assert not list(kernel.cache.rglob("*.part"))


def test_an_old_pip_is_told(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    from importlib import metadata

    class Old:
        version = "21.2.4"

    monkeypatch.setattr(metadata, "distribution", lambda name: Old())
    with pytest.raises(EnvironmentFault, match=r"pip 21\.2\.4 is too old"):
        kernel.run("app")

    def lacks(name: str) -> None:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "distribution", lacks)
    with pytest.raises(EnvironmentFault, match="lacks"):
        kernel.run("app")


@pytest.mark.second("packages")
def test_wheels_go_that_no_cell_has_used(kernel: Kernel, index: Index) -> None:
    for version in ("1.0", "2.0", "3.0"):
        index.add("app", version)
    first, second = kernel.run("app==1.0"), kernel.run("app==2.0")
    for path in (*kernel.cache.glob("wheels/*"), *kernel.cache.glob("chosen/*")):
        os.utime(path, (1, 1))
    kernel.run("app==2.0")  # used now

    third = kernel.run("app==3.0")

    assert not first.folder.exists()
    assert second.folder.is_dir()
    assert third.folder.is_dir()
    assert len(list(kernel.cache.glob("chosen/*.json"))) == 2
    assert kernel.run("app==1.0").folder == first.folder
    assert first.folder.is_dir()


@pytest.mark.parametrize(
    ("line", "wish"),
    [
        ("git+https://jane:hunter2@example.com/lib.git", "git+https://…@example.com/lib.git"),
        ("lib[x] @ git+https://jane:hunter2@example.com/lib", "lib[x]"),
        ("https://jane:hun@ter2@example.com/lib.zip", "https://…@example.com/lib.zip"),
    ],
)
def test_a_wish_without_a_wheel_is_told_without_its_password(
    kernel: Kernel, line: str, wish: str
) -> None:
    with pytest.raises(NoWheel) as raised:
        kernel.run(file=f"{line}\n")
    assert raised.value.wish == wish
