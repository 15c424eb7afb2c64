"""What builds images beside ciao: crane, buildah, and kaniko's executor in a pod."""

from __future__ import annotations

import asyncio
import contextlib
import io
import secrets
import shutil
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TypeVar

from benchmarks.clusters import Place
from ciao_kernel.builders import executor, packed_context
from ciao_kernel.config import Settings
from ciao_kernel.kube.client import Client
from ciao_kernel.model import JobSpec, Source, SourceFile
from ciao_kernel.oci.layer import File
from ciao_kernel.plugins import Build
from tests.cluster.commands import run
from tests.cluster.errors import ClusterError
from tests.cluster.layout import cache
from tests.cluster.programs import on_demand
from tests.cluster.store import digest, make

Peer = TypeVar("Peer")


def had(name: str, get: Callable[[], Peer]) -> Peer | None:
    """A peer; None, which is said, if it cannot be had on this machine."""
    try:
        return get()
    except (ClusterError, OSError) as error:
        print(f"    left out: {name} cannot be had: {error}", flush=True)
        return None


class Crane:
    """``crane append`` of go-containerregistry, which is a program for each layer."""

    def __init__(self) -> None:
        self._program = str(on_demand("crane") / "crane")

    def append(self, base: str, target: str, layer: Path) -> float:
        """Append a tar to an image; returns seconds."""
        words = ["append", "--insecure", "-b", base, "-f", str(layer), "-t", target]
        began = time.perf_counter()
        subprocess.run([self._program, *words], check=True, capture_output=True)
        return time.perf_counter() - began


def layer(place: Path, code: str) -> Path:
    """Write the tar of a cell as crane takes it: the files that ciao packs."""
    with tarfile.open(place, "w") as tar:
        folder = tarfile.TarInfo("ciao")
        folder.type, folder.mode = tarfile.DIRTYPE, 0o755
        tar.addfile(folder)
        member = tarfile.TarInfo("ciao/cell.py")
        member.size = len(code)
        tar.addfile(member, io.BytesIO(code.encode()))
    return place


_BUILDAH = """
# Its cache of what registries have is there, wherever its storage is.
mount -t tmpfs tmpfs /var/lib
mkdir /var/lib/containers
mount --bind {folder}/containers /var/lib/containers
export PATH={tree}/usr/bin:$PATH CONTAINERS_CONF=/dev/null
export LD_LIBRARY_PATH=$(echo {tree}/usr/lib/*-linux-gnu | tr ' ' :)
export CONTAINERS_REGISTRIES_CONF={folder}/registries.conf
b() {{ word=$1; shift; buildah --storage-driver overlay $word "$@"; }}
ours="--tls-verify=false --signature-policy={folder}/policy.json"
"""
_PULL = "b pull -q $ours {base}"
_BUILD = """
b build -q --pull-never $ours -t {target} {folder}/context
b push -q $ours {target}
"""
_COMMIT = """
made=$(b from --pull-never $ours {base})
b copy -q $made {folder}/context/cell.py /ciao/cell.py
b config --workingdir /ciao $made
b commit -q --rm $ours $made docker://{target}
"""


class Buildah:
    """buildah, with a base in its storage (overlay): an edited cell finds all of it warm.

    Args:
        tree: Where its packages are unpacked.
        folder: Of its storage.
        base: The image.
    """

    def __init__(self, tree: Path, folder: Path, base: str) -> None:
        self._tree, self._folder, self._base = tree, folder, base
        (folder / "containers").mkdir()
        (folder / "context").mkdir()
        (folder / "policy.json").write_text('{"default": [{"type": "insecureAcceptAnything"}]}')
        (folder / "registries.conf").write_text("unqualified-search-registries = []\n")
        self._run(_PULL)

    def build(self, target: str, code: str) -> float:
        """Build by a Dockerfile, and push; returns seconds."""
        text = f"FROM {self._base}\nCOPY cell.py /ciao/cell.py\nWORKDIR /ciao\n"
        (self._folder / "context" / "Dockerfile").write_text(text)
        return self._edited(_BUILD, target, code)

    def commit(self, target: str, code: str) -> float:
        """Commit a container straight to the registry, its fastest way; returns seconds."""
        return self._edited(_COMMIT, target, code)

    def _edited(self, script: str, target: str, code: str) -> float:
        (self._folder / "context" / "cell.py").write_text(code)
        return self._run(script, target)

    def _run(self, script: str, target: str = "") -> float:
        """Run in a mount namespace of its own; that it takes to come up is not counted."""
        before = _BUILDAH.format(tree=self._tree, folder=self._folder)
        work = script.format(folder=self._folder, base=self._base, target=target)
        text = (
            f"{before}\nbegan=$(date +%s%N)\n{{\n{work}\n}} >&2\necho $(($(date +%s%N) - began))\n"
        )
        own = ["unshare", "--mount", "--propagation", "private"]
        return int(run([*own, "sh", "-ec", text]).split()[-1]) / 1e9


@contextlib.contextmanager
def buildah(base: str) -> Iterator[Buildah | None]:
    """The machine's buildah, or Debian's in a folder of the cache; None if it cannot be had."""
    with tempfile.TemporaryDirectory(dir=cache(), ignore_cleanup_errors=True) as folder:
        yield had("buildah", lambda: Buildah(_unpacked(), Path(folder), base))


def _unpacked() -> Path:
    """Debian's buildah with all that it needs and the machine lacks, nothing of it installed."""
    if shutil.which("buildah"):
        return Path("/")

    def build(folder: Path) -> None:
        print("    unpacking Debian's buildah", flush=True)
        hint = "run `apt-get update` first, if it names no candidate"
        wanted = run(["apt-get", "install", "-s", "--no-install-recommends", "buildah"], hint=hint)
        names = [line.split()[1] for line in wanted.splitlines() if line.startswith("Inst ")]
        run(["apt-get", "download", *names], cwd=folder, hint=hint)
        for package in folder.glob("*.deb"):
            run(["dpkg-deb", "-x", package, folder])
            package.unlink()

    return make("buildah", digest(Path("/etc/debian_version").read_text()), build)


async def kaniko(
    at: Place, client: Client, dockerfile: str, files: Mapping[str, str], target: str
) -> float:
    """Build by kaniko alone: a pod with all caches on; returns seconds from its context on.

    Raises:
        RuntimeError: The build failed.
    """
    name = f"kaniko-{secrets.token_hex(3)}"
    settings = Settings(
        kaniko_image=at.cluster.image("kaniko"), plain_registries=(at.cluster.at.registry,)
    )
    nowhere = Path()
    spec, source = JobSpec("tensorflow"), Source(SourceFile("cell.py"))
    ask = Build(source, spec, "python3", name, nowhere, nowhere)
    packed = packed_context.pack_context(
        [File(path, text.encode()) for path, text in {"Dockerfile": dockerfile, **files}.items()],
        nowhere,
        lambda: None,
    )
    path = f"/api/v1/namespaces/{at.namespace.name}"
    await client.get("/version")  # the connection is open
    began = time.perf_counter()
    await client.create(f"{path}/configmaps", packed_context.config_map(name, packed, None))
    await client.create(f"{path}/pods", executor.pod(name, target, ask, settings))
    while True:
        phase = (await client.get(f"{path}/pods/{name}"))["status"].get("phase")
        if phase == "Failed":
            raise RuntimeError(f"kaniko: {(await client.text(f'{path}/pods/{name}/log'))!r}")
        if phase == "Succeeded":
            break
        await asyncio.sleep(0.1)
    took = time.perf_counter() - began
    await client.delete(f"{path}/pods/{name}")
    await client.delete(f"{path}/configmaps/{name}")
    return took
