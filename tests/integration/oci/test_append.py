"""What appending leaves in a registry, and how many requests it takes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ciao_kernel.oci.image import Platform
from ciao_kernel.oci.layer import File, pack
from ciao_kernel.oci.reference import parse
from tests.integration.oci.conftest import User
from tests.integration.oci.fake_registry import (
    INDEX,
    MANIFEST,
    OCI,
    FakeRegistry,
    digest,
    push_base,
)

Serve = Callable[..., FakeRegistry]
Make = Callable[..., User]
DOCKER = "application/vnd.docker"
UNCHANGED = ["GET /v2/bases/python/manifests/1", "HEAD /v2/team/cells/manifests/TAG"]
EDITED = [
    *UNCHANGED,
    "POST /v2/team/cells/blobs/uploads/",
    "PUT /v2/team/cells/blobs/uploads/ID",
    "POST /v2/team/cells/blobs/uploads/",
    "PUT /v2/team/cells/blobs/uploads/ID",
    "PUT /v2/team/cells/manifests/TAG",
]


def requests(fake: FakeRegistry) -> list[str]:
    def general(line: str) -> str:
        head, _, last = line.rpartition("/")
        if "uploads" in head and last:
            last = "ID"
        return f"{head}/{'TAG' if last.startswith('ciao-') else last}"

    return [general(line) for line in fake.lines()]


def there(fake: FakeRegistry, image: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Manifest and config of an image, all of whose parts are there."""
    reference = parse(image)
    kind, raw = fake.manifests[reference.repository, reference.version]
    body = json.loads(raw)
    assert body["mediaType"] == kind
    assert digest(raw) == reference.digest
    for part in [body["config"], *body["layers"]]:
        assert len(fake.blobs[reference.repository, part["digest"]]) == part["size"]
    return body, json.loads(fake.blobs[reference.repository, body["config"]["digest"]])


def test_the_image_is_the_base_and_the_layer(serve: Serve, user: Make) -> None:
    fake = serve()
    push_base(fake)
    base = json.loads(fake.manifests["bases/python", "1"][1])

    made = user(fake).append(f"{fake.host}/bases/python:1", f"{fake.host}/team/cells")

    manifest, config = there(fake, str(made.image))
    layer = pack([File("ciao/ciao_cell.py", b"print(1)")], writable=["ciao"])
    assert manifest["layers"] == [
        *base["layers"],
        {
            "mediaType": f"{OCI}.layer.v1.tar+gzip",
            "digest": layer.digest,
            "size": layer.size,
        },
    ]
    assert manifest["config"]["mediaType"] == base["config"]["mediaType"]
    assert "annotations" not in manifest
    assert fake.blobs["team/cells", layer.digest] == layer.content
    assert config["config"] == {
        "Env": ["PATH=/bin", "A=2", "B=x=y", "C=3"],
        "Labels": {"base": "1", "cell": "1"},
        "User": "1001",
        "Entrypoint": ["/bin/sh"],
        "WorkingDir": "/ciao",
    }
    assert config["rootfs"]["diff_ids"][-1] == layer.diff_id
    assert config["history"] == [{"created_by": "base"}, {"created_by": "ciao"}]
    assert fake.manifests["team/cells", made.tag] == fake.manifests["team/cells", made.image.digest]


@pytest.mark.parametrize("layers", [1, 12])
def test_requests_after_the_first_cell(serve: Serve, user: Make, layers: int) -> None:
    fake, size = serve(), 0
    push_base(fake, layers=layers)
    kernel = user(fake)
    base, target = f"{fake.host}/bases/python:1", f"{fake.host}/team/cells"
    kernel.append(base, target, "print(0)")
    fake.lines()

    edited = kernel.append(base, target, "print(1)")
    size = sum(seen.size for seen in fake.seen)
    assert sorted(requests(fake)) == sorted(EDITED)  # layer and config go side by side
    assert size < 2000 + 300 * layers
    assert not edited.unchanged

    again = kernel.append(base, target, "print(1)")
    assert requests(fake) == UNCHANGED
    assert again == type(again)(edited.image, edited.tag, unchanged=True)

    new_kernel = user(fake).append(base, target, "print(1)")
    assert len(requests(fake)) == 3  # and the base's config
    assert new_kernel == again


def test_an_index_costs_one_request_more_once(serve: Serve, user: Make) -> None:
    fake = serve()
    one = push_base(fake, tag="amd64")
    index = {
        "schemaVersion": 2,
        "mediaType": INDEX,
        "manifests": [
            {"digest": digest(b"arm"), "platform": {"os": "linux", "architecture": "arm64"}},
            {"digest": one, "platform": {"os": "linux", "architecture": "amd64"}},
        ],
    }
    fake.push("bases/python", "1", json.dumps(index).encode(), INDEX)
    kernel = user(fake)
    base, target = f"{fake.host}/bases/python:1", f"{fake.host}/team/cells"
    kernel.append(base, target, "print(0)")
    assert fake.lines()[:2] == [
        "GET /v2/bases/python/manifests/1",
        f"GET /v2/bases/python/manifests/{one}",
    ]

    kernel.append(base, target, "print(1)")

    assert sorted(requests(fake)) == sorted(EDITED)


def test_a_base_in_the_same_repository_is_not_moved(serve: Serve, user: Make) -> None:
    fake = serve()
    push_base(fake, "team/cells")

    user(fake).append(f"{fake.host}/team/cells:1", f"{fake.host}/team/cells")

    assert not any("mount" in seen.line for seen in fake.seen)
    assert len(fake.seen) == 8


def test_layers_are_mounted_from_another_repository(serve: Serve, user: Make) -> None:
    fake = serve()
    push_base(fake, layers=3)

    made = user(fake).append(f"{fake.host}/bases/python:1", f"{fake.host}/team/cells")

    assert len([seen for seen in fake.seen if "mount=" in seen.line]) == 3
    assert max(seen.size for seen in fake.seen) < 3000
    there(fake, str(made.image))


@pytest.mark.parametrize("answer", [202, 401, 403, 400, 404])
def test_layers_that_cannot_be_mounted_are_copied(serve: Serve, user: Make, answer: int) -> None:
    fake = serve(mount=answer)
    push_base(fake)
    base, target = f"{fake.host}/bases/python:1", f"{fake.host}/team/cells"

    made = user(fake).append(base, target)
    there(fake, str(made.image))
    assert sum(seen.size > 100_000 for seen in fake.seen) == 2

    fake.lines()
    user(fake).append(base, target, "print(2)")  # another kernel: they are there
    assert not any(seen.size > 100_000 for seen in fake.seen)


@pytest.mark.parametrize("answer", [202, 404])
def test_no_upload_stays_open_where_mounts_are_declined(
    serve: Serve, user: Make, answer: int
) -> None:
    fake = serve(mount=answer)
    push_base(fake, layers=3)
    base, target = f"{fake.host}/bases/python:1", f"{fake.host}/team/cells"
    user(fake).append(base, target)
    assert not fake.uploads

    fake.lines()
    user(fake).append(base, target, "print(2)")  # another kernel: they are there

    assert not fake.uploads
    lines = fake.lines()
    assert sum(line.startswith("POST") for line in lines) == (2 if answer == 202 else 3)
    assert sum(line.startswith("HEAD") and "/blobs/" in line for line in lines) == 3


def test_layers_come_from_another_registry_and_are_told_of(serve: Serve, user: Make) -> None:
    near, far = serve(auth="basic"), serve(auth="token")
    push_base(far)
    told: list[tuple[str, int, int]] = []

    made = user(near, far).append(
        f"{far.host}/bases/python:1",
        f"{near.host}/team/cells",
        tell=lambda *args: told.append(args),
    )

    manifest, _ = there(near, str(made.image))
    assert [(one, size, size) for one, size, _ in told if size == _] == [
        (layer["digest"], layer["size"], layer["size"]) for layer in manifest["layers"][:2]
    ]
    assert not any("PUT" in line or "POST" in line for line in far.lines() if "token" not in line)


def test_who_listens_may_end_the_copy(serve: Serve, user: Make) -> None:
    near, far = serve(), serve()
    push_base(far)

    def stop(*args: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        user(near, far).append(f"{far.host}/bases/python:1", f"{near.host}/team/cells", tell=stop)
    assert not near.manifests


def test_packages_are_sent_once_while_the_cell_changes(
    serve: Serve, user: Make, tmp_path: Path
) -> None:
    import random

    fake = serve()
    push_base(fake)
    packages = pack(
        [File("opt/site/a.bin", random.Random(1).randbytes(200_000))], tmp_path / "layer"
    )
    base, target = f"{fake.host}/bases/python:1", f"{fake.host}/team/cells"

    def run(kernel: User, code: str) -> list[int]:
        cell = pack([File("ciao/ciao_cell.py", code.encode())])
        made = kernel.append(base, target, layers=[packages, cell])
        assert len(there(fake, str(made.image))[0]["layers"]) == 4
        sizes = [seen.size for seen in fake.seen if seen.size]
        fake.lines()
        return sizes

    first = user(fake)
    assert max(run(first, "1")) == packages.size
    assert max(run(first, "2")) < 3000
    assert len(run(first, "3")) == 3
    assert max(run(user(fake), "4")) < 3000


@pytest.mark.parametrize("relative", [True, False])
@pytest.mark.parametrize("query", [True, False])
def test_all_forms_of_an_uploads_address(
    serve: Serve, user: Make, relative: bool, query: bool
) -> None:
    fake = serve(relative=relative, query=query, auth="token")
    push_base(fake)

    made = user(fake).append(f"{fake.host}/bases/python:1", f"{fake.host}/team/cells")

    there(fake, str(made.image))


@pytest.mark.parametrize(
    ("kind", "layer", "ours"),
    [
        (MANIFEST, f"{OCI}.layer.v1.tar+gzip", f"{OCI}.layer.v1.tar+gzip"),
        (MANIFEST, f"{OCI}.layer.v1.tar+zstd", f"{OCI}.layer.v1.tar+gzip"),
        (MANIFEST, f"{OCI}.layer.v1.tar", f"{OCI}.layer.v1.tar+gzip"),
        (
            f"{DOCKER}.distribution.manifest.v2+json",
            f"{DOCKER}.image.rootfs.diff.tar.gzip",
            f"{DOCKER}.image.rootfs.diff.tar.gzip",
        ),
    ],
)
def test_families_of_images_are_kept(
    serve: Serve, user: Make, kind: str, layer: str, ours: str
) -> None:
    fake = serve()
    push_base(fake, kind=kind, layer_type=layer)

    made = user(fake).append(f"{fake.host}/bases/python:1", f"{fake.host}/team/cells")

    manifest, _ = there(fake, str(made.image))
    assert manifest["mediaType"] == kind
    assert [one["mediaType"] for one in manifest["layers"]] == [layer, layer, ours]


@pytest.mark.parametrize(
    "config",
    [
        {"config": None, "history": None},
        {"config": {}, "history": []},
        {"config": {"Env": None, "Labels": None}},
        {"architecture": None, "os": ""},
    ],
)
def test_bases_that_say_little(serve: Serve, user: Make, config: dict[str, Any]) -> None:
    fake = serve()
    push_base(fake, config=config)

    made = user(fake).append(f"{fake.host}/bases/python:1", f"{fake.host}/team/cells")

    inner = there(fake, str(made.image))[1]["config"]
    assert inner["Env"][-1] == "C=3"
    assert inner["Labels"]["cell"] == "1"


def test_a_layer_from_elsewhere_by_design_stays_there(serve: Serve, user: Make) -> None:
    fake = serve()
    push_base(fake, layers=1)
    body = json.loads(fake.manifests["bases/python", "1"][1])
    body["layers"][0] |= {"digest": digest(b"x"), "urls": ["https://elsewhere.example.com"]}
    fake.push("bases/python", "1", json.dumps(body).encode())

    made = user(fake).append(f"{fake.host}/bases/python:1", f"{fake.host}/team/cells")

    assert json.loads(fake.manifests["team/cells", made.tag][1])["layers"][0]["urls"]


def test_a_registry_that_does_not_say_digests(serve: Serve, user: Make) -> None:
    fake = serve(digest_header=False)
    push_base(fake)
    kernel = user(fake)
    base, target = f"{fake.host}/bases/python:1", f"{fake.host}/team/cells"

    first, second = kernel.append(base, target), kernel.append(base, target)

    assert (second.image, second.unchanged) == (first.image, True)


def test_all_that_makes_an_image_makes_its_tag(serve: Serve, user: Make) -> None:
    fake = serve()
    push_base(fake, tag="1")
    push_base(fake, tag="2", layers=1)
    kernel, target = user(fake), f"{fake.host}/team/cells"

    tags = [
        kernel.append(f"{fake.host}/bases/python:{base}", target, code).tag
        for base, code in [("1", "a"), ("1", "b"), ("2", "a"), ("1", "a")]
    ]

    assert tags[0] == tags[3]
    assert len(set(tags)) == 3


def test_a_part_that_was_lost_is_pushed_again(serve: Serve, user: Make) -> None:
    fake = serve()
    push_base(fake)
    kernel = user(fake)
    base, target = f"{fake.host}/bases/python:1", f"{fake.host}/team/cells"
    made = kernel.append(base, target)
    for key in [key for key in fake.blobs if key[0] == "team/cells"]:
        del fake.blobs[key]

    assert kernel.append(base, target).unchanged
    again = kernel.append(base, target, force=True)

    assert again.image == made.image
    there(fake, str(again.image))


def test_layers_that_were_removed_meanwhile_are_brought_again(serve: Serve, user: Make) -> None:
    fake = serve()
    push_base(fake)
    kernel = user(fake)
    base, target = f"{fake.host}/bases/python:1", f"{fake.host}/team/cells"
    kernel.append(base, target)
    for key in [key for key in fake.blobs if key[0] == "team/cells"]:
        del fake.blobs[key]

    made = kernel.append(base, target, "print(2)")

    there(fake, str(made.image))


def test_what_will_be_is_what_is_then_pushed(serve: Serve, user: Make) -> None:
    fake = serve()
    push_base(fake)
    kernel, target = user(fake), f"{fake.host}/team/cells"

    def both(**more: Any) -> list[Any]:
        below = kernel.append(f"{fake.host}/bases/python:1", target, "below", **more)
        return [below, kernel.append(str(below.image), target, "above", **more)]

    dry = both(push=False)
    assert {seen.line.split()[0] for seen in fake.seen} == {"GET", "HEAD"}
    fake.lines()

    assert both() == dry
    assert len(fake.lines()) == 7 + 2 + 6
    there(fake, str(dry[1].image))
    assert [one.unchanged for one in both(push=False)] == [True, True]


@pytest.mark.parametrize("rights", [{}, {"team/cells": {"pull"}}])
def test_a_repository_that_does_not_exist_yet_has_no_image(
    serve: Serve, user: Make, rights: dict[str, set[str]]
) -> None:
    """Docker Hub says so to those who may push alone, and makes it with the first push."""
    fake = serve(auth="token", hides_new=True, rights=rights)
    find = user(fake).appender.find
    target = parse(f"{fake.host}/team/cells")
    assert find(target, "nothing") is None


def test_find_and_inspect(serve: Serve, user: Make) -> None:
    fake = serve(auth="token")
    base = push_base(fake)
    kernel = user(fake)

    image = kernel.appender.inspect(parse(f"{fake.host}/bases/python:1"), Platform())
    assert (image.digest, image.labels, image.user) == (base, {"base": "1"}, "1001")
    target = parse(f"{fake.host}/team/cells")
    assert kernel.appender.find(target, "nothing") is None
    made = kernel.append(f"{fake.host}/bases/python:1", str(target))
    assert kernel.appender.find(target, made.tag) == made.image
