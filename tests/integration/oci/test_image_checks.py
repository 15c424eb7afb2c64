"""``ciao doctor`` asks registries for the images of the frameworks."""

from __future__ import annotations

import asyncio

import pytest

from ciao_kernel.commands.finding import Finding
from ciao_kernel.commands.image_checks import check_images
from ciao_kernel.config import Settings
from tests.integration.oci.fake_registry import Behaviour, FakeRegistry, serving

_LONG = 300.0


def checked(*plain: str, **images: str) -> list[Finding]:
    async def main() -> list[Finding]:
        values = {"images": " ".join(f"{k}={v}" for k, v in images.items())}
        settings = Settings().with_values(
            {**values, "plain_registries": " ".join(plain)}, "the test"
        )
        defaults = dict.fromkeys(images, "default.example/x:1")
        return [finding async for finding in check_images(defaults, settings, _LONG)]

    return asyncio.run(main())


@pytest.fixture
def own_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """No credentials of docker or podman."""
    home = str(tmp_path_factory.mktemp("home"))
    for name in ("HOME", "DOCKER_CONFIG", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, home)
    monkeypatch.delenv("REGISTRY_AUTH_FILE", raising=False)


def registry_with_an_image(registry: FakeRegistry) -> str:
    registry.push("team/tf", "1", b"{}")
    return f"{registry.host}/team/tf:1"


@pytest.mark.usefixtures("own_home")
def test_an_image_of_several_frameworks_is_asked_for_once() -> None:
    with serving() as registry:
        image = registry_with_an_image(registry)
        (finding,) = checked(registry.host, tensorflow=image, pytorch=image)
        assert registry.lines() == ["HEAD /v2/team/tf/manifests/1"]
    assert finding == Finding("ok", f"the image {image} of tensorflow and pytorch jobs exists")


@pytest.mark.usefixtures("own_home")
def test_a_missing_image_is_wrong_and_the_fix_names_it_alone() -> None:
    with serving() as registry:
        good = registry_with_an_image(registry)
        missing = f"{registry.host}/team/tf:2"
        found = checked(registry.host, tensorflow=good, pytorch=missing)
    assert [one.level for one in found] == ["ok", "wrong"]
    assert f"there is no image {missing}, which pytorch jobs" in found[1].what
    assert found[1].fix.endswith("ciao config images.pytorch=IMAGE")
    assert "%image=IMAGE" in found[1].fix


@pytest.mark.usefixtures("own_home")
def test_what_only_the_nodes_can_tell_is_a_note() -> None:
    with serving(Behaviour(auth="basic")) as registry:
        closed, away = f"{registry.host}/a:1", "127.0.0.1:1/a:1"
        notes = checked(registry.host, "127.0.0.1:1", tensorflow=closed, pytorch=away)
    assert [one.level for one in notes] == ["note", "note"]
    assert "requires authentication" in notes[0].what
    assert "nothing listens there" in notes[1].what
    assert all("only the nodes must be able to pull it" in one.fix for one in notes)
    assert notes[1].fix == "check the name; only the nodes must be able to pull it"


@pytest.mark.usefixtures("own_home")
def test_a_name_that_this_machine_cannot_resolve_has_one_remedy() -> None:
    (note,) = checked(tensorflow="registry.invalid/a:1")
    assert "the name of the registry registry.invalid cannot be resolved here" in note.what
    assert note.fix == "check the name; only the nodes must be able to pull it"


def test_a_name_that_is_no_image_is_wrong() -> None:
    (finding,) = checked(tensorflow="A:1")
    assert finding.level == "wrong"
    assert "'A:1' is not an image's name" in finding.what
