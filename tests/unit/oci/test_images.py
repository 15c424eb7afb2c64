"""Whatever a registry sends is an image that can be built on, or one clear error."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ciao_kernel.errors import RegistryFault
from ciao_kernel.oci.derived_image import Change, config_of, manifest_of, packed, tag_of
from ciao_kernel.oci.image import Images, Platform
from ciao_kernel.oci.layer import File, pack
from ciao_kernel.oci.reference import parse
from ciao_kernel.oci.registry_errors import Answer
from ciao_kernel.oci.repository import Repository

KIND = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"
DIGEST = "sha256:" + "0" * 64
LAYER = pack([File("a", b"1")])
CHANGE = Change((("A", "1"),), (("l", "1"),), "/ciao")

TEXTS = st.sampled_from(["", "linux", "amd64", KIND, INDEX, DIGEST, "../x", "A=1", "ü\x1b[0m"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2**70) | st.floats() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
GOOD_CONFIG = {
    "architecture": "amd64",
    "os": "linux",
    "config": {"Env": ["A=0"], "Labels": {"l": "0"}},
    "rootfs": {"type": "layers", "diff_ids": [DIGEST]},
    "history": [{"created_by": "base"}],
}
GOOD = {
    "schemaVersion": 2,
    "mediaType": KIND,
    "layers": [{"mediaType": "x", "digest": DIGEST, "size": 1}],
}
GOOD_INDEX = {
    "mediaType": INDEX,
    "manifests": [
        {"digest": DIGEST, "platform": {"os": "linux", "architecture": "amd64", "variant": "v1"}}
    ],
}


class Sent:
    """A repository in which everything is as it is."""

    reference = parse("host/base")

    def __init__(self, body: Any, config: Any) -> None:
        self.config = json.dumps(config).encode()
        if isinstance(body, dict) and "config" not in body:
            digest = f"sha256:{hashlib.sha256(self.config).hexdigest()}"
            body = {**body, "config": {"mediaType": "c", "digest": digest, "size": 2}}
        self.body = json.dumps(body).encode()

    def manifest(self, version: str, accept: str, name: str) -> Answer:
        return Answer(200, {"Content-Type": KIND}, self.body, "https://host/")

    def blob(self, digest: str, name: str) -> bytes:
        return self.config


def read(body: Any, config: Any = GOOD_CONFIG) -> tuple[dict[str, Any], dict[str, Any]]:
    image = Images().read(cast(Repository, Sent(body, config)), "1", Platform())
    new = config_of(image, [LAYER], CHANGE)
    assert tag_of(image, [LAYER], CHANGE).startswith("ciao-")
    assert image.user is not None
    return json.loads(packed(manifest_of(image, [LAYER], packed(new)))), json.loads(packed(new))


@st.composite
def damaged(draw: st.DrawFn, good: dict[str, Any]) -> Any:
    """Something good with one part, at any depth, that may be anything."""
    made = json.loads(json.dumps(good))
    inside: Any = made
    while True:
        keys = list(inside) if isinstance(inside, dict) else list(range(len(inside)))
        key = draw(st.sampled_from(keys))
        if not isinstance(inside[key], dict | list) or not inside[key] or draw(st.booleans()):
            inside[key] = draw(VALUES)
            return made
        inside = inside[key]


def test_what_is_good_is_read() -> None:
    manifest, config = read(GOOD)

    assert [layer["digest"] for layer in manifest["layers"]] == [DIGEST, LAYER.digest]
    assert config["config"] == {"Env": ["A=1"], "Labels": {"l": "1"}, "WorkingDir": "/ciao"}


def outcome(body: Any, config: Any = GOOD_CONFIG) -> str:
    """What is said of an image; "" if it can be built on, and is right then."""
    try:
        manifest, made = read(body, config)
    except RegistryFault as fault:
        return fault.message
    assert len(manifest["layers"]) == len(made["rootfs"]["diff_ids"])
    assert "A=1" in made["config"]["Env"]
    return ""


@settings(max_examples=300)
@given(st.one_of(damaged(GOOD), damaged(GOOD_INDEX), VALUES))
def test_any_manifest(body: Any) -> None:
    assert outcome(body).isprintable()


@settings(max_examples=300)
@given(st.one_of(damaged(GOOD_CONFIG), VALUES))
def test_any_config(config: Any) -> None:
    assert outcome(GOOD, config).isprintable()


def test_colours_of_strangers_are_not_shown() -> None:
    assert "is for linux/ [31m," in outcome(GOOD, {**GOOD_CONFIG, "architecture": "\x1b[31m"})


@pytest.mark.parametrize("part", ["layer", "config", "index"])
def test_no_digest_counts_that_cannot_be_checked(part: str) -> None:
    """Only those that every registry knows are: sha256."""
    other = "sha512:" + "0" * 128
    told = {"mediaType": "x", "digest": other, "size": 1}
    if part == "index":
        platform = {"os": "linux", "architecture": "amd64"}
        body = {**GOOD_INDEX, "manifests": [{"digest": other, "platform": platform}]}
        assert "has no image for linux/amd64" in outcome(body)
    else:
        body = {**GOOD, **({"layers": [told]} if part == "layer" else {"config": told})}
        assert "is broken" in outcome(body)


def test_no_more_images_are_kept_than_that() -> None:
    images = Images()
    sent = Sent(GOOD, GOOD_CONFIG)
    base = images.read(cast(Repository, sent), "1", Platform())
    images.keep(base, Platform())
    for i in range(1000):
        images.keep(replace(base, digest=f"sha256:{i:064}"), Platform())
        assert images.read(cast(Repository, Sent([], [])), base.digest, Platform()) is base
    assert len(images._known) < 200


@pytest.mark.parametrize("part", ["base", "layer", "env", "label", "workdir"])
def test_everything_changes_the_tag(part: str) -> None:
    def tag(changed: str) -> str:
        body = {**GOOD, "x": 1} if changed == "base" else GOOD
        image = Images().read(cast(Repository, Sent(body, GOOD_CONFIG)), "1", Platform())
        change = Change(
            (("A", "2" if changed == "env" else "1"),),
            (("l", "2" if changed == "label" else "1"),),
            "/x" if changed == "workdir" else "/ciao",
        )
        return tag_of(image, [pack([File("a", b"2")]) if changed == "layer" else LAYER], change)

    assert tag(part) != tag("")
    assert tag("") == tag("")
