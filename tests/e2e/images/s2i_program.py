"""The same source given to the program s2i and to %builder=s2i: what each would build."""

from __future__ import annotations

import asyncio
import base64
import io
import re
import subprocess
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ciao_kernel.builders.s2i import S2IBuilder
from ciao_kernel.config import Settings
from ciao_kernel.delivery.input.imports import gather
from ciao_kernel.model import BuildSpec, Event, JobSpec, Manifest
from ciao_kernel.plugins import Build, Emit, PodResult
from tests.cluster.cluster import Cluster
from tests.cluster.programs import on_demand
from tests.e2e.images.copies import copied

Instruction = tuple[str, str | dict[str, str]]
"""Its word, and the rest; pairs, which s2i writes in any order, as what they say."""
_PAIR = re.compile(r'(?:"((?:[^"\\]|\\.)*)"|([^\s=]+))="((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True)
class Made:
    """A Dockerfile, and what lies beside it: bytes, and whether they can be run."""

    dockerfile: list[Instruction]
    files: dict[str, tuple[bytes, bool]]


@dataclass(frozen=True)
class Builder:
    """A builder image: as people write it, and by its digest."""

    name: str
    pinned: str


@dataclass(frozen=True)
class Both:
    """Asks both.

    Args:
        cluster: Its registry has the builder images.
        folder: For what is made.
        source: A folder.
    """

    cluster: Cluster
    folder: Path
    source: Path

    def builder(self, name: str, **config: Any) -> Builder:
        """The cluster's builder image by another name, with something else in its config."""
        digest = copied(self.cluster, "s2i-python:3.13", name, **config)
        whole = f"{self.cluster.at.registry}/{name}"
        return Builder(whole, f"{whole.rpartition(':')[0] if ':' in name else whole}@{digest}")

    def theirs(self, builder: str, *more: str) -> Made:
        """What the program makes. It reads the labels from the registry, and asks no daemon."""
        out, home = self.folder / "out", self.folder / "home"
        registries = home / ".config" / "containers" / "registries.conf"
        registries.parent.mkdir(parents=True)
        where = self.cluster.at.registry
        registries.write_text(f'[[registry]]\nlocation = "{where}"\ninsecure = true\n')
        program = str(on_demand("s2i") / "s2i")
        known = ["--copy", f"--as-dockerfile={out}/Dockerfile", str(self.source), builder]
        env = {"HOME": str(home), "PATH": "/usr/bin:/bin"}
        done = subprocess.run(
            [program, "build", *known, *more], env=env, capture_output=True, text=True, timeout=60
        )
        said = done.stdout + done.stderr
        assert done.returncode == 0, said
        assert "could not inspect" not in said, said  # the labels
        files = {
            path.relative_to(out).as_posix(): (path.read_bytes(), bool(path.stat().st_mode & 0o100))
            for path in out.rglob("*")
            if path.is_file() and path != out / "Dockerfile"
        }
        return Made(instructions((out / "Dockerfile").read_text()), files)

    def ours(self, builder: str, words: tuple[str, ...] = (".",), **wishes: Any) -> Made:
        """What a pod would build; ``words`` is what ``%files`` names."""
        host, storage = self.cluster.at.registry, self.folder / "storage"
        storage.mkdir()
        settings = Settings(
            storage=storage, plain_registries=(host,), registry=f"{host}/tests/s2i-program"
        )
        source = gather("print(1)\n", self.source, words)
        spec = JobSpec("tensorflow", build=BuildSpec(s2i_builder=builder, **wishes))
        ask = Build(source, spec, "python3", "job", storage, self.source, build_cluster=_Workshop())
        with pytest.raises(_Seen) as seen:
            asyncio.run(S2IBuilder(settings).build(ask, _nobody))
        with tarfile.open(fileobj=io.BytesIO(base64.b64decode(str(seen.value)))) as tar:
            files = {
                one.name: (opened.read(), bool(one.mode & 0o100))
                for one in tar
                if (opened := tar.extractfile(one))
            }
        return Made(instructions(files.pop("Dockerfile")[0].decode()), files)


class _Seen(Exception):
    """Ends a build where its pod would start; has the pod's context."""


class _Workshop:
    """Where no pod is run."""

    namespace = "nobody"

    async def free(self) -> bool:
        return True

    async def run(self, pod: Manifest, beside: Sequence[Manifest], emit: Emit) -> PodResult:
        raise _Seen(beside[0]["binaryData"]["context.tar.gz"])

    async def secret(self, name: str) -> Mapping[str, bytes]:
        raise AssertionError(name)


def _nobody(event: Event) -> None:
    """Shows nothing."""


def instructions(text: str) -> list[Instruction]:
    """The instructions of a Dockerfile."""
    found: list[Instruction] = []
    for line in re.sub(r"\s*\\\n\s*", " ", text).split("\n"):
        word, _, rest = line.partition(" ")
        if not line.strip() or line.startswith("#"):
            continue
        if word in ("LABEL", "ENV"):
            assert not _PAIR.sub("", rest).strip(), rest
            found.append((word, {one[1] or one[2]: one[3] for one in _PAIR.finditer(rest)}))
        else:
            found.append((word, rest))
    return found
