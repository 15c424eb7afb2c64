"""Layers are looked into as they come, however they are packed."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
import tracemalloc
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from ciao_kernel.oci.image import Platform
from ciao_kernel.oci.interpreter import Installed
from ciao_kernel.oci.reference import parse
from tests.integration.oci.conftest import User
from tests.integration.oci.fake_registry import MANIFEST, FakeRegistry, digest, push_base

Serve = Callable[..., FakeRegistry]
Make = Callable[..., User]
LARGE = 128 << 20


def layer(large: int = 0, numpy: str = "2.1") -> bytes:
    """A tar of a Python with two packages, and a file of zeros that packs to nothing."""
    site = "usr/lib/python3.13/site-packages"
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, size in [
            ("bin/python3.13", 0),
            ("zeros", large),
            (f"{site}/numpy-{numpy}.dist-info/METADATA", 3),
            (f"{site}/scikit_learn-1.5.dist-info", 0),
        ]:
            member = tarfile.TarInfo(name)
            member.size = size
            tar.addfile(member, io.BytesIO(bytes(size)))
    return buffer.getvalue()


def of_files(*files: str) -> bytes:
    """A tar of files: each a path, ``path -> target`` of a link, or ``path = content``."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for file in files:
            path, _, content = file.partition(" = ")
            path, link, target = path.partition(" -> ")
            member = tarfile.TarInfo(path)
            member.size = len(content)
            if link:
                member.type, member.linkname = tarfile.SYMTYPE, target
            tar.addfile(member, io.BytesIO(content.encode()))
    return buffer.getvalue()


def push(fake: FakeRegistry, blob: bytes, *env: str) -> None:
    push_base(fake, layers=1, config={"config": {"Env": env}} if env else {})
    body = json.loads(fake.manifests["bases/python", "1"][1])
    body["layers"] = [{"mediaType": "layer", **fake.put("bases/python", blob)}]
    fake.push("bases/python", "1", json.dumps(body).encode(), MANIFEST)


def look(
    kernel: User, fake: FakeRegistry, cache: Path, env: Mapping[str, str] | None = None
) -> Installed:
    base = parse(f"{fake.host}/bases/python:1")
    image = kernel.appender.inspect(base, Platform())
    if env:
        config = {"config": {"Env": [f"{name}={value}" for name, value in env.items()]}}
        image = replace(image, config=config)
    return kernel.appender.installed(base, image, cache, lambda text: None)


PACKED: list[Callable[[bytes], bytes]] = [
    lambda raw: raw,
    gzip.compress,
    lambda raw: gzip.compress(raw[:5000]) + gzip.compress(raw[5000:]),
]


@pytest.mark.parametrize("packed", PACKED, ids=["tar", "gzip", "members"])
def test_packages_are_found(
    serve: Serve, user: Make, tmp_path: Path, packed: Callable[[bytes], bytes]
) -> None:
    fake = serve(auth="token")
    push(fake, packed(layer()))
    kernel = user(fake)

    found = look(kernel, fake, tmp_path)

    assert found == Installed("3.13", {"numpy": "2.1", "scikit-learn": "1.5"})
    fake.lines()
    assert look(user(fake), fake, tmp_path) == found
    assert sum("/blobs/" in line for line in fake.lines()) == 1  # the config


def test_it_is_said_once_how_much_is_read(serve: Serve, user: Make, tmp_path: Path) -> None:
    fake = serve(auth="token")
    push(fake, layer(25_000_000))
    kernel = user(fake)
    base = parse(f"{fake.host}/bases/python:1")
    image = kernel.appender.inspect(base, Platform())
    (first,) = image.manifest["layers"]
    second = {"mediaType": "layer", **fake.put("bases/python", of_files("f = " + "x" * 25_000_000))}
    image = replace(image, manifest={**image.manifest, "layers": [first, second, first]})
    said: list[str] = []
    for _ in range(2):
        found = kernel.appender.installed(base, image, tmp_path, said.append)
        assert found == Installed("3.13", {"numpy": "2.1", "scikit-learn": "1.5"})
    assert said == [f"reading the packages of {fake.host}/bases/python, once (50 MB) …"]


SAYS = "GNU C Library (Debian GLIBC 2.36-9+deb12u10) stable release version 2.36."


@pytest.mark.parametrize(
    ("files", "glibc"),
    [
        ([f"usr/lib/x86_64-linux-gnu/libc.so.6 = {' ' * 2_000_000}{SAYS}"], 36),
        ([f"lib64/libc-2.28.so = {SAYS}", "lib64/libc.so.6 -> libc-2.28.so"], 28),
        (["lib64/libc.so.6 = something else"], 0),
    ],
)
def test_the_c_library_is_found(
    serve: Serve, user: Make, tmp_path: Path, files: list[str], glibc: int
) -> None:
    fake = serve()
    push(fake, of_files(*files, "usr/bin/python3.13"))
    kernel = user(fake)
    for _ in range(2):  # the second time from the cache
        assert look(kernel, fake, tmp_path) == Installed("3.13", {}, glibc=glibc)


PYTHONS = (
    "usr/bin/python3.11",
    "usr/bin/python3.12",
    "usr/local/lib/python3.11/dist-packages/numpy-2.1.dist-info/METADATA = x",
    "usr/local/lib/python3.12/dist-packages/numpy-2.2.dist-info/METADATA = x",
)
"""Two Pythons, and no command python3."""


def test_the_link_of_update_alternatives_is_followed(
    serve: Serve, user: Make, tmp_path: Path
) -> None:
    fake = serve()
    links = (
        "usr/bin/python3 -> /etc/alternatives/python3",
        "etc/alternatives/python3 -> /usr/bin/python3.11",
    )
    push(fake, of_files(*PYTHONS, *links))

    assert look(user(fake), fake, tmp_path) == Installed("3.11", {"numpy": "2.1"})


@pytest.mark.parametrize("root", ["usr/local/.pyenv", "opt/pyenv"])
def test_the_version_that_pyenv_selects_is_found(
    serve: Serve, user: Make, tmp_path: Path, root: str
) -> None:
    fake = serve()
    own = (
        f"{root}/shims/python3 = #!/usr/bin/env bash",
        f"{root}/version = # comment\n3.13.1\n",
        f"{root}/versions/3.13.1/bin/python3 -> python3.13",
        f"{root}/versions/3.13.1/bin/python3.13",
        f"{root}/versions/3.13.1/lib/python3.13/site-packages/numpy-2.3.dist-info/METADATA = x",
    )
    push(fake, of_files(*PYTHONS, "usr/bin/python3 -> python3.12", *own))
    look_there = {"PATH": f"/{root}/shims:/usr/bin"}

    assert look(user(fake), fake, tmp_path, look_there) == Installed("3.13", {"numpy": "2.3"})


def test_zeros_do_not_fill_the_memory(serve: Serve, user: Make, tmp_path: Path) -> None:
    fake = serve()
    push(fake, gzip.compress(layer(LARGE)))
    kernel = user(fake)
    kernel.appender.inspect(parse(f"{fake.host}/bases/python:1"), Platform())

    tracemalloc.start()
    try:
        assert look(kernel, fake, tmp_path).packages["numpy"] == "2.1"
        assert tracemalloc.get_traced_memory()[1] < LARGE // 8
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("blob", [b"\x1f\x8bbroken" * 10, b"\x28\xb5\x2f\xfd" * 10, b"x" * 600])
def test_a_layer_that_cannot_be_read(serve: Serve, user: Make, tmp_path: Path, blob: bytes) -> None:
    fake = serve()
    push(fake, blob)
    kernel = user(fake)

    fault = kernel.fault(lambda: look(kernel, fake, tmp_path))

    assert "cannot be read" in fault.message
    assert not list(tmp_path.rglob("*.json"))


@pytest.mark.parametrize("packed", PACKED, ids=["tar", "gzip", "members"])
def test_a_layer_that_is_not_what_its_digest_says(
    serve: Serve, user: Make, tmp_path: Path, packed: Callable[[bytes], bytes]
) -> None:
    fake = serve()
    push(fake, other := packed(layer(numpy="9.9")))
    body = json.loads(fake.manifests["bases/python", "1"][1])
    own = body["layers"][0]["digest"]
    body["layers"][0]["digest"] = known = digest(packed(layer()))
    fake.push("bases/python", "1", json.dumps(body).encode(), MANIFEST)
    fake.blobs["bases/python", known] = other
    kernel = user(fake)

    fault = kernel.fault(lambda: look(kernel, fake, tmp_path))

    assert "does not match its digest" in fault.message
    assert not list(tmp_path.rglob("*.json"))
    push(fake, other)
    assert own in fake.manifests["bases/python", "1"][1].decode()
    assert look(kernel, fake, tmp_path).packages["numpy"] == "9.9"
