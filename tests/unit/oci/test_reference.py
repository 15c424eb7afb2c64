"""Names of images, as Docker and Kubernetes read them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ciao_kernel.errors import UsageError, describe
from ciao_kernel.oci.reference import Reference, parse

DIGEST = "sha256:" + "0a" * 32
PART = r"[a-z0-9]{1,8}((\.|_|__|-|---)[a-z0-9]{1,8}){0,2}"


@pytest.mark.parametrize(
    ("text", "registry", "repository", "tag", "digest"),
    [
        ("python", "docker.io", "library/python", "", ""),
        ("python:3.13", "docker.io", "library/python", "3.13", ""),
        ("team/model", "docker.io", "team/model", "", ""),
        ("docker.io/python", "docker.io", "library/python", "", ""),
        ("index.docker.io/team/model", "docker.io", "team/model", "", ""),
        ("localhost/model", "localhost", "model", "", ""),
        ("localhost:5000/model", "localhost:5000", "model", "", ""),
        ("host:5000/team/model:v1", "host:5000", "team/model", "v1", ""),
        ("ghcr.io/a/b/c/d", "ghcr.io", "a/b/c/d", "", ""),
        ("[::1]:5000/model:1", "[::1]:5000", "model", "1", ""),
        ("10.200.0.2:5000/a__b/c.d-e", "10.200.0.2:5000", "a__b/c.d-e", "", ""),
        ("Registry.Example.com/model", "Registry.Example.com", "model", "", ""),
        (f"quay.io/team/model@{DIGEST}", "quay.io", "team/model", "", DIGEST),
        (f"quay.io/team/model:v1@{DIGEST}", "quay.io", "team/model", "v1", DIGEST),
        (f"python@{DIGEST}", "docker.io", "library/python", "", DIGEST),
        ("model:" + "t" * 128, "docker.io", "library/model", "t" * 128, ""),
    ],
)
def test_an_image_is_read(text: str, registry: str, repository: str, tag: str, digest: str) -> None:
    assert parse(text) == Reference(registry, repository, tag, digest)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "an empty text is not a repository"),
        (":1", "an empty text is not a repository"),
        ("host:5000/", "an empty text is not a repository"),
        ("Model", "Model is not a repository"),
        ("ghcr.io/Team/model", "Team/model is not a repository"),
        ("ghcr.io/team//model", "team//model is not a repository"),
        ("ghcr.io/team/../model", "team/../model is not a repository"),
        ("ghcr.io/team/model/", "team/model/ is not a repository"),
        ("a._b", "a._b is not a repository"),
        ("mo del", "mo del is not a repository"),
        ("model\n", "is not a repository"),
        ("mödel", "mödel is not a repository"),
        ("a" * 256, "is not a repository"),
        ("model:", "an empty text is not a tag"),
        ("model:-1", "-1 is not a tag"),
        ("model:1:2", "1:2 is not a tag"),
        ("model:ü", "ü is not a tag"),
        ("model:" + "t" * 129, "is not a tag"),
        ("https://ghcr.io/team/model", "https: is not a host"),
        ("a..b/model", "a..b is not a host"),
        ("-a.b/model", "-a.b is not a host"),
        ("host:99999/model", "host:99999 is not a host"),
        ("host:0/model", "host:0 is not a host"),
        ("host:/model", "host: is not a host"),
        ("host:١/model", "is not a host"),
        ("model@sha256:12", "sha256:12 is not a digest"),
        ("model@sha512:" + "0" * 128, "is not a digest"),
        (f"model@{DIGEST}0", "is not a digest"),
        (f"model@{DIGEST.upper()}", "user or password"),
        ("model@", "user or password"),
    ],
)
def test_what_is_wrong_is_named(text: str, why: str) -> None:
    with pytest.raises(UsageError) as raised:
        parse(text)
    assert why in raised.value.message
    assert raised.value.hint


@pytest.mark.parametrize(
    "text",
    [
        "jane:hunter2@ghcr.io/team/model",
        "https://jane:hunter2@ghcr.io/team/model",
        "jane:hunter2@shared.example.com/model",
        "jane:hunter2@sha256.example.com/model",
    ],
)
def test_a_password_is_not_shown(text: str) -> None:
    with pytest.raises(UsageError) as raised:
        parse(text)
    assert "hunter2" not in "\n".join(describe(raised.value))


@given(
    st.from_regex(r"[a-z][a-z0-9-]{0,8}[a-z0-9]\.[a-z]{2,5}(:[1-9][0-9]{0,3})?", fullmatch=True),
    st.lists(st.from_regex(PART, fullmatch=True), min_size=1, max_size=4),
    st.from_regex(r"(\A[A-Za-z0-9_][A-Za-z0-9_.-]{0,20})?", fullmatch=True),
    st.sampled_from(["", DIGEST]),
)
def test_a_name_is_read_back_from_what_is_written(
    registry: str, parts: list[str], tag: str, digest: str
) -> None:
    image = Reference(registry, "/".join(parts), tag, digest)

    assert parse(str(image)) == image
    assert parse(image.name) == Reference(registry, "/".join(parts))


@given(st.text(alphabet=st.characters(codec="utf-8"), max_size=40))
def test_any_text_is_an_image_or_a_clear_error(text: str) -> None:
    try:
        image = parse(text)
    except UsageError:
        return
    assert parse(str(image)) == image


def test_docker_hub_answers_under_another_name() -> None:
    image = parse("python:3.13")

    assert (image.host, image.name) == ("registry-1.docker.io", "docker.io/library/python")
    assert parse("ghcr.io/a").host == "ghcr.io"


def test_the_version_is_digest_then_tag_then_latest() -> None:
    assert parse(f"model:1@{DIGEST}").version == DIGEST
    assert parse("model:1").version == "1"
    assert parse("model").version == "latest"
    assert str(parse("ghcr.io/m:1").at(DIGEST)) == f"ghcr.io/m@{DIGEST}"
