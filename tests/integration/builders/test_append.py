"""The builder that appends, against a registry that counts what it is asked."""

from __future__ import annotations

import asyncio
import json
import os
import re
import secrets
import subprocess
import sys
import tarfile
import threading
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from ciao_kernel.builders import layers
from ciao_kernel.builders.append import AppendBuilder
from ciao_kernel.builders.configmap import ConfigMapBuilder
from ciao_kernel.config import Settings
from ciao_kernel.errors import EnvironmentFault, RegistryFault, SourceError, SpecError
from ciao_kernel.model import (
    Artifact,
    BuildSpec,
    Event,
    JobSpec,
    Notice,
    Progress,
    Source,
    SourceFile,
)
from ciao_kernel.oci import contents
from ciao_kernel.plugins import Build, Builder
from tests.helpers.jobs import interrupted, wait
from tests.helpers.packages import Index
from tests.integration.oci.conftest import impatient as impatient
from tests.integration.oci.fake_registry import MANIFEST, FakeRegistry, Handler, push_base
from tests.integration.oci.test_contents import layer, push

Serve = Callable[..., FakeRegistry]
HUGE = 4 << 30


class Kernel:
    """Builds cells on an image of the registry."""

    def __init__(self, fake: FakeRegistry, index: Index, folder: Path) -> None:
        self.fake, self.index, self.folder = fake, index, folder
        self.base = f"{fake.host}/bases/python:1"
        self.said: list[str] = []
        self.progress: list[Progress] = []
        self.new()

    def new(self, **settings: Any) -> None:
        """Start anew, as another kernel of the same user."""
        known = {"plain_registries": (self.fake.host,), "registry": f"{self.fake.host}/team/cells"}
        self.settings = Settings(storage=self.folder, **{**known, **settings})
        self.builder: Builder = AppendBuilder(self.settings)

    def emit(self, event: Event) -> None:
        if isinstance(event, Progress):
            self.progress.append(event)
        else:
            assert isinstance(event, Notice)
            self.said.append(event.text)

    async def build(
        self,
        code: str,
        *packages: str,
        dry: bool = False,
        python: str = "python3",
        requirements: str | None = None,
        **wishes: Any,
    ) -> Artifact:
        source = Source(SourceFile("cell.py", code.encode(), size=len(code)), **wishes)
        asked = BuildSpec(packages=packages, requirements=requirements, pip_index=self.index.url)
        spec = JobSpec("tensorflow", build=asked)
        ask = Build(source, spec, python, "job", self.folder, self.folder, self.base, "amd64", dry)
        return await self.builder.build(ask, self.emit)

    def run(self, code: str, *packages: str, **more: Any) -> Artifact:
        async def main() -> Artifact:
            made = await self.build(code, *packages, **more)
            await asyncio.sleep(0)  # what threads said
            return made

        return asyncio.run(main())

    def image(self, made: Artifact) -> dict[str, Any]:
        raw = self.fake.manifests["team/cells", made.image.partition("@")[2]][1]
        found: dict[str, Any] = json.loads(raw)
        config = self.fake.blobs["team/cells", found["config"]["digest"]]
        return {"layers": found["layers"], "config": json.loads(config)["config"]}

    def python(self, made: Artifact, code: str, *paths: Path) -> str:
        """Run code with the packages of an image, and further folders on the path."""
        root, image = self.folder / "root", self.image(made)
        for one in image["layers"]:
            with tarfile.open(fileobj=BytesIO(self.fake.blobs["team/cells", one["digest"]])) as tar:
                tar.extractall(root)  # with `filter` only from Python 3.11.4 on
        (path,) = (one for one in image["config"]["Env"] if one.startswith("PYTHONPATH="))
        folders = [f"{root}{one}" for one in path.partition("=")[2].split(":")]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join([*folders, *map(str, paths)])}
        command = [sys.executable, "-c", code]
        return subprocess.run(command, env=env, cwd="/", check=True, stdout=-1, text=True).stdout

    def image_layers(self) -> list[str]:
        """Blobs that came into the repository."""
        return [digest for name, digest in self.fake.blobs if name == "team/cells"]

    def requests(self) -> list[str]:
        """What came since the last time."""
        lines = [seen.line for seen in self.fake.seen]
        self.fake.seen.clear()
        return lines


@pytest.fixture
def kernel(serve: Serve, index: Index, tmp_path: Path) -> Kernel:
    fake = serve(auth="")
    push(fake, layer())
    index.add("app", "1.0", "numpy>=2", "lib")
    index.add("numpy", "2.3")
    index.add("lib", "2.0")
    return Kernel(fake, index, tmp_path)


def test_packages_and_cell_are_layers_of_their_own(kernel: Kernel) -> None:
    first = kernel.run("print(1)", "app")
    assert "downloading app==1.0, lib==2.0 …" in kernel.said
    kernel.requests()

    second = kernel.run("print(2)", "app")
    edited = kernel.requests()
    same = kernel.run("print(2)", "app")

    one, two = kernel.image(first), kernel.image(second)
    assert one["layers"][:-1] == two["layers"][:-1]
    assert one["layers"][-1] != two["layers"][-1]
    assert len(one["layers"]) == 3
    assert f"PYTHONPATH={dict(second.env)['PYTHONPATH']}" in two["config"]["Env"]
    assert two["config"]["WorkingDir"] == "/ciao"
    assert len(edited) <= 9, edited
    assert sum("PUT" in line and "/blobs/" in line for line in edited) == 2
    assert same.image == second.image
    assert not any("PUT" in line or "POST" in line for line in kernel.requests())
    assert kernel.said[-1] == f"image {same.image} (unchanged)"
    assert kernel.said[-2] == f"image {second.image}"


def test_another_kernel_makes_the_same_images(kernel: Kernel) -> None:
    first = kernel.run("print(1)", "app")
    kernel.new()
    kernel.requests()

    assert kernel.run("print(1)", "app").image == first.image
    assert not any("PUT" in line for line in kernel.requests())


def test_the_artifact_says_where_packages_lie(kernel: Kernel) -> None:
    """A variable of the user's own would hide what the image says."""
    env = kernel.run("print(1)", "app").env
    assert re.fullmatch(r"/opt/ciao/site/[0-9a-f]{24}", dict(env)["PYTHONPATH"])
    assert kernel.run("print(1)", "app", dry=True).env == env
    assert not kernel.run("print(1)", "numpy").env
    assert not kernel.run("print(1)").env

    made = kernel.run("print(1)", "app")
    kernel.base = made.image
    assert kernel.run("print(2)", "app").env == env


def test_an_image_of_ciao_as_a_base_gets_newer_packages(kernel: Kernel, index: Index) -> None:
    """The cell names the image of its packages, and a later cell may begin with it."""
    index.add("app", "1.0", "lib", more={"gone.py": ""})
    first = kernel.run("print(1)", "app")
    index.add("app", "3.0", "lib")
    kernel.base = first.image
    newer = kernel.run("print(1)", "app==3.0")
    assert "packages of the image are replaced: app 1.0 by 3.0" in kernel.said

    code = "import app, lib, importlib.metadata as m; print(app.version, m.version('app'))"
    assert kernel.python(newer, code) == "3.0 3.0\n"
    before, path = dict(first.env)["PYTHONPATH"], dict(newer.env)["PYTHONPATH"]
    assert path.endswith(f":{before}")
    kernel.base = newer.image
    older = kernel.run("print(1)", "app==1.0", "lib")
    assert kernel.python(older, code) == "1.0 1.0\n"
    kernel.base = older.image
    assert kernel.run("print(1)", "app==1.0", "lib").env == older.env


def test_pth_files_of_packages_are_read(kernel: Kernel, index: Index, tmp_path: Path) -> None:
    """Python itself reads none on the PYTHONPATH."""
    index.add("hook", "1.0", code="import sys; sys.hooked = True", more={"x.pth": "import hook\n"})
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "sitecustomize.py").write_text("print('of the image')\n")
    made = kernel.run("print(1)", "hook")

    code = "import sys, sitecustomize as own; print(sys.hooked, own.__file__)"
    said = kernel.python(made, code, tmp_path / "own")
    assert said == f"of the image\nTrue {tmp_path}/own/sitecustomize.py\n"
    assert kernel.python(made, "import sys; print(sys.hooked)") == "True\n"
    # In the order of the image: the program's own folder, then the packages.
    code = "import sys; print(['/site/' in one for one in sys.path][:3])"
    assert kernel.python(made, code, tmp_path / "own").endswith("\n[False, True, False]\n")


def test_what_the_image_has_needs_no_layer(kernel: Kernel) -> None:
    assert len(kernel.image(kernel.run("print(1)", "numpy"))["layers"]) == 2


def test_a_dry_run_writes_nothing(kernel: Kernel) -> None:
    dry = kernel.run("print(1)", "app", dry=True)

    assert not any(line.startswith(("PUT", "POST")) for line in kernel.requests())
    assert kernel.run("print(1)", "app").image == dry.image
    assert kernel.image(dry)


@pytest.mark.parametrize(
    ("python", "finds"), [("python3.13", True), ("/opt/venv/bin/python", False)]
)
def test_the_replicas_interpreter_counts(kernel: Kernel, python: str, finds: bool) -> None:
    if finds:
        assert kernel.run("print(1)", "app", python=python)
        return
    with pytest.raises(SourceError, match=f"no {python} was found in "):
        kernel.run("print(1)", "app", python=python)


def test_no_registry_is_named(kernel: Kernel) -> None:
    kernel.new(registry="")
    with pytest.raises(SpecError) as raised:
        kernel.run("print(1)", "app")
    assert raised.value.directive == "packages"


def test_no_wheel(kernel: Kernel) -> None:
    with pytest.raises(SourceError) as raised:
        kernel.run("print(1)", "nobody-has")
    assert raised.value.message == (
        "there is no wheel of nobody-has for Python 3.13 on linux/amd64 for glibc 2.28 and older, "
        "or no such package."
    )
    assert "%builder=kaniko" in raised.value.hint
    assert not any(line.startswith(("PUT", "POST")) for line in kernel.requests())


def test_no_wheel_of_what_a_file_asks_for(kernel: Kernel, index: Index) -> None:
    index.add("needy", "1.0", "lib>=9")
    cases = {
        "Nobody_Has>=2": "requirements.txt, line 3: there is no wheel of nobody_has>=2 for "
        "Python 3.13 on linux/amd64 for glibc 2.28 and older, or no such package.",
        "lib==7": "requirements.txt, line 3: there is no wheel of lib==7 for "
        "Python 3.13 on linux/amd64 for glibc 2.28 and older; it has 2.0.",
        "needy": "requirements.txt, line 3: there is no wheel of lib>=9 (needy needs it) for "
        "Python 3.13 on linux/amd64 for glibc 2.28 and older; it has 2.0.",
    }
    for line, says in cases.items():
        (kernel.folder / "requirements.txt").write_text(f"# ours\n\n{line}\n")
        with pytest.raises(SourceError) as raised:
            kernel.run("print(1)", requirements="requirements.txt")
        assert raised.value.message.lower() == says.lower()
    assert kernel.image_layers() == []


def test_the_authority_may_lie_at_home(
    kernel: Kernel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    kernel.new(registry_authority="~/gone.pem")
    with pytest.raises(RegistryFault) as raised:
        kernel.run("print(1)")
    assert str(tmp_path / "gone.pem") in raised.value.message


def test_a_file_that_went(kernel: Kernel, tmp_path: Path) -> None:
    gone = SourceFile("data.csv", origin=tmp_path / "data.csv", size=1)
    with pytest.raises(SourceError, match="cannot be read: No such file"):
        kernel.run("print(1)", files=(gone,))


def test_a_large_file_is_packed_on_the_disk(kernel: Kernel, tmp_path: Path) -> None:
    data = tmp_path / "data.bin"
    data.write_bytes(bytes(17 << 20))
    file = SourceFile("data.bin", origin=data, size=17 << 20)

    made = kernel.run("print(1)", files=(file,))

    assert kernel.image(made)["layers"][-2]["size"] == (tmp_path / "files.tar.gz").stat().st_size


def test_an_edited_cell_sends_its_files_no_second_time(kernel: Kernel, tmp_path: Path) -> None:
    data = tmp_path / "data.bin"
    data.write_bytes(secrets.token_bytes(2 << 20))
    files = (SourceFile("data.bin", origin=data, size=2 << 20),)
    made = kernel.run("print(1)", files=files)
    kernel.fake.seen.clear()

    edited = kernel.run("print(2)", files=files)

    assert sum(seen.size for seen in kernel.fake.seen) < 64 << 10
    assert kernel.image(edited)["layers"][:-1] == kernel.image(made)["layers"][:-1]
    data.write_bytes(b"changed")
    other = kernel.run("print(2)", files=files)
    assert kernel.image(other)["layers"][-1] == kernel.image(edited)["layers"][-1]
    assert other.image != edited.image


@pytest.mark.parametrize("settings", [{}, {"builder": "configmap"}, {"registry": ""}])
def test_what_no_config_map_holds_goes_into_an_image(
    kernel: Kernel, tmp_path: Path, settings: dict[str, str]
) -> None:
    """Where nobody has named a builder, and there is a registry."""
    kernel.new(**settings)
    kernel.builder = ConfigMapBuilder(kernel.settings)
    data = tmp_path / "data.bin"
    data.write_bytes(secrets.token_bytes(2 << 20))
    files = (SourceFile("data.bin", origin=data, size=2 << 20),)

    assert not kernel.run("print(1)").image
    if settings:
        with pytest.raises(SourceError, match=r"too large for a ConfigMap: 2\.0 MiB") as raised:
            kernel.run("print(1)", files=files)
        assert "%builder=append" in raised.value.hint
        assert not kernel.requests()
    else:
        assert len(kernel.image(kernel.run("print(1)", files=files))["layers"]) == 3
        assert kernel.said[0] == (
            "code and files are too large for a ConfigMap: they are put into an image (append)."
        )


def test_packages_that_are_used_stay_and_others_go(kernel: Kernel) -> None:
    """What was not used for so many days is removed where something new is brought."""
    kernel.run("print(1)", "app")
    cache = kernel.folder / "cache"
    kept = sorted(path for path in (cache / "wheels").iterdir() if path.suffix != ".lock")
    assert [path.name[24:] for path in kept] == ["", ".json", ".tar.gz"]
    (layer,) = (cache / contents.CACHE).iterdir()
    other = cache / contents.CACHE / "other.json"
    other.write_text("{}")
    former = cache / "layers" / "other.json"
    former.parent.mkdir()
    former.write_text("{}")
    for path in (*kept, layer, other, former):
        os.utime(path, (1, 1))

    kernel.run("print(2)", "app")
    kernel.run("print(2)", "lib")

    assert all(path.exists() for path in (*kept, layer))
    assert not other.exists()
    assert not former.exists()


def test_a_full_disk(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    import errno

    def full(*args: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(layers, "pack", full)
    with pytest.raises(EnvironmentFault, match="no space is left"):
        kernel.run("print(1)")


def test_an_interrupt_ends_the_upload_of_packages(
    kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are read piece by piece as they are sent; it is interrupted at the first."""
    real, read, stopped = layers.Body.read, threading.Event(), threading.Event()

    def slow(body: layers.Body, size: int = -1) -> Any:
        read.set()
        stopped.wait(60)
        return real(body, size)

    monkeypatch.setattr(layers.Body, "read", slow)
    kernel.index.add("app", "1.0", code=f"padding = {secrets.token_hex(1 << 20)!r}")

    async def main() -> None:
        work = asyncio.ensure_future(kernel.build("print(1)", "app"))
        await wait(read.is_set)
        asyncio.get_running_loop().call_later(0.2, stopped.set)  # after the interrupt
        await interrupted(work)

    asyncio.run(main())
    assert not any("/manifests/" in line and "PUT" in line for line in kernel.requests())
    # The base's layer, and the config, which a thread of its own sends.
    asyncio.run(wait(lambda: len(kernel.image_layers()) == 2))


def test_an_interrupt_ends_a_long_copy(
    kernel: Kernel, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The base's layers come from another registry, without end."""
    going, broken = threading.Event(), threading.Event()

    def trickle(handler: Handler) -> bool:
        if "/blobs/sha256:00" not in handler.path:
            return False
        handler.send_response(200)
        handler.send_header("Content-Length", str(HUGE))
        handler.end_headers()
        try:
            while not broken.wait(0.01):
                handler.wfile.write(bytes(1 << 18))
                going.set()
        except OSError:
            broken.set()
        return True

    other = serve(before=trickle)
    push_base(other, layers=1)
    body = json.loads(other.manifests["bases/python", "1"][1])
    body["layers"] = [{"mediaType": "layer", "digest": "sha256:" + "0" * 64, "size": HUGE}]
    other.push("bases/python", "1", json.dumps(body).encode(), MANIFEST)
    kernel.new(plain_registries=(kernel.fake.host, other.host))
    kernel.base = f"{other.host}/bases/python:1"

    async def main() -> None:
        work = asyncio.ensure_future(kernel.build("print(1)"))
        await wait(going.is_set)
        await wait(lambda: any("copying" in text for text in kernel.said))
        await interrupted(work)
        # Nothing of it goes on: what sent has lost its reader.
        await wait(broken.is_set)

    asyncio.run(main())
    assert not any(line.startswith("PUT /v2/team/cells/manifests") for line in kernel.requests())
