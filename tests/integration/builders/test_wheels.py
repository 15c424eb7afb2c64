"""Packages for another Python than this one, from a real index, by the real pip."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from ciao_kernel.builders import wheels
from ciao_kernel.builders.wheels import NoWheel, Target, Wheels
from ciao_kernel.errors import EnvironmentFault, SourceError
from ciao_kernel.model import BuildSpec
from ciao_kernel.requirements import read
from tests.helpers.jobs import interrupted, wait
from tests.helpers.packages import Index


class Kernel:
    """What asks for packages; remembers what it was told."""

    def __init__(self, index: Index, folder: Path) -> None:
        self.index, self.folder, self.cache = index, folder, folder / "cache"
        self.said: list[str] = []

    async def bring(self, *packages: str, file: str = "", **target: Any) -> Wheels:
        (self.folder / "requirements.txt").write_text(file)
        named = "requirements.txt" if file else None
        spec = BuildSpec(packages=packages, requirements=named, pip_index=self.index.url)
        known = {"python": "3.8", "architecture": "arm64", "packages": {}, **target}
        return await wheels.bring(
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


def test_markers_mean_the_images_python(kernel: Kernel, index: Index) -> None:
    index.add(
        "app",
        "1.0",
        "old; python_version < '3.9'",
        "new; python_version >= '3.9'",
        "arm; platform_machine == 'aarch64'",
        "mac; sys_platform == 'darwin'",
    )
    for name in ("old", "new", "arm", "mac"):
        index.add(name, "1.0")

    assert kernel.run("app").names == ("app==1.0", "arm==1.0", "old==1.0")


def test_wheels_are_those_of_the_platform(kernel: Kernel, index: Index) -> None:
    index.add("app", "1.0", tag="cp38-cp38-manylinux2014_aarch64", code="which = 'glibc'")
    index.add("app", "1.0", tag="cp38-cp38-musllinux_1_1_aarch64", code="which = 'musl'")
    index.add("app", "1.0", tag="cp38-cp38-macosx_11_0_arm64", code="which = 'mac'")

    for musl in (False, True):
        code = (kernel.run("app", musl=musl).folder / "app/__init__.py").read_text()
        assert ("'musl'" if musl else "'glibc'") in code


def test_the_second_time_nobody_is_asked(kernel: Kernel, index: Index) -> None:
    index.add("app", "1.0")
    first = kernel.run("app")
    index.add("app", "2.0")
    index.asked.clear()

    assert kernel.run("app") == first
    assert not index.asked


def test_the_very_wheel_that_was_chosen_is_brought(kernel: Kernel, index: Index) -> None:
    index.add("app", "1.0", code="original")
    first = kernel.run("app")
    index.add("app", "1.0", code="changed")

    for path in sorted(first.folder.rglob("*"), reverse=True):
        path.unlink() if path.is_file() else path.rmdir()
    first.folder.rmdir()

    with pytest.raises(SourceError, match="HASH"):
        kernel.run("app")


def test_two_at_once_bring_it_once(kernel: Kernel, index: Index) -> None:
    index.add("app", "1.0")

    async def both() -> list[Wheels]:
        return await asyncio.gather(kernel.bring("app"), kernel.bring("app"))

    first, second = asyncio.run(both())

    assert first == second
    assert sum("bringing" in text for text in kernel.said) == 1
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
    "wish", ["sdist", "absent==3", "app @ git+https://example.com/app", "exact>2"]
)
def test_what_has_no_wheel(kernel: Kernel, index: Index, wish: str) -> None:
    index.files["sdist-1.0.tar.gz"] = b"source"
    index.add("exact", "1.0")

    with pytest.raises(NoWheel) as raised:
        kernel.run(wish)

    assert str(raised.value).startswith(wish.partition(" ")[0])


def test_a_conflict_is_explained(kernel: Kernel, index: Index) -> None:
    index.add("app", "1.0", "lib==1.0")
    index.add("lib", "1.0")
    index.add("lib", "2.0")

    with pytest.raises(SourceError, match=r"together: .*app 1\.0 depends on lib==1\.0"):
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

    with pytest.raises(SourceError, match="wants to know who asks"):
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
    with pytest.raises(EnvironmentFault, match="has none"):
        kernel.run("app")


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
