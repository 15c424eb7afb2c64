"""Settings of pip on this machine, from its files and its variables."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from ciao_kernel.delivery.packages import pip_settings
from ciao_kernel.errors import EnvironmentFault

CORP = "https://pypi.corp/simple"


@pytest.fixture(autouse=True)
def config(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The user's pip.conf; there are no other settings."""
    for name in list(os.environ):
        if name.startswith(("PIP_", "XDG_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "pip.conf"))
    return tmp_path / "pip.conf"


@pytest.mark.parametrize("name", ["index-url", "extra-index-url", "find-links"])
def test_sources_of_the_files(config: Path, name: str) -> None:
    for section, written in ("global", name), ("install", name.replace("-", "_")):
        config.write_text(f"[{section}]\n{written} = {CORP}\n")
        assert pip_settings.own_sources({}) == (name,)


@pytest.mark.parametrize("place", [".config/pip/pip.conf", ".pip/pip.conf"])
def test_a_named_file_replaces_those_of_the_user(config: Path, place: str) -> None:
    own = config.parent / place
    own.parent.mkdir(parents=True)
    own.write_text(f"[global]\nindex-url = {CORP}\n")
    assert pip_settings.own_sources({}) == ("index-url",)
    config.touch()
    assert not pip_settings.own_sources({})


def test_only_the_own_environment_has_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """pip reads none beside the Python that an environment was made with."""
    for name in "prefix", "base_prefix":
        (tmp_path / name).mkdir()
        monkeypatch.setattr(sys, name, str(tmp_path / name))
    (tmp_path / "base_prefix" / "pip.conf").write_text(f"[global]\nindex-url = {CORP}\n")
    assert not pip_settings.own_sources({})
    (tmp_path / "prefix" / "pip.conf").write_text(f"[global]\nindex-url = {CORP}\n")
    assert pip_settings.own_sources({}) == ("index-url",)


@pytest.mark.parametrize("section", ["global", "install"])
@pytest.mark.parametrize("name", ["target", "prefix", "root"])
def test_no_file_may_send_packages_elsewhere(config: Path, section: str, name: str) -> None:
    config.write_text(f"[{section}]\n{name} =\n[download]\n{name} = /opt/x\n")
    pip_settings.check()
    config.write_text(f"[{section}]\n{name} = /opt/x\n")
    with pytest.raises(EnvironmentFault, match=rf"{name} = /opt/x in {config}\.") as raised:
        pip_settings.check()
    assert f"[{section}]" in raised.value.hint


def test_sources_of_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", CORP)
    monkeypatch.setenv("PIP_FIND_LINKS", "/opt/wheels")
    assert pip_settings.own_sources({}) == ("index-url", "find-links")


def test_none_but_the_public_index(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not pip_settings.own_sources({})
    config.write_text(f"[global]\nindex-url = {CORP}\n[download]\nextra-index-url = {CORP}\n")
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "")
    monkeypatch.setenv("PIP_INDEX_URL", "https://pypi.org/simple/")
    assert not pip_settings.own_sources({})


@pytest.mark.parametrize(
    ("here", "there", "missing"),
    [
        ({"INDEX_URL": CORP}, {"INDEX_URL": f"{CORP}/"}, ()),
        ({"INDEX_URL": CORP.replace("://", "://jane:hunter2@")}, {"INDEX_URL": CORP}, ()),
        ({"INDEX_URL": CORP}, {"PYPI_URL": CORP}, ()),
        ({"EXTRA_INDEX_URL": CORP}, {"EXTRA_INDEX_URL": f"https://a.b {CORP}"}, ()),
        ({"EXTRA_INDEX_URL": CORP}, {"INDEX_URL": CORP}, ()),
        ({"EXTRA_INDEX_URL": f"{CORP} https://a.b"}, {"INDEX_URL": CORP}, ("extra-index-url",)),
        ({"INDEX_URL": CORP}, {"INDEX_URL": "https://other.corp/simple"}, ("index-url",)),
        # Pip there would take the higher version of two, also that of pypi.org.
        ({"INDEX_URL": CORP}, {"EXTRA_INDEX_URL": CORP}, ("index-url",)),
        ({"FIND_LINKS": "/wheels"}, {"FIND_LINKS": "/wheels"}, ("find-links",)),
    ],
)
def test_sources_that_an_image_has_too(
    monkeypatch: pytest.MonkeyPatch,
    here: dict[str, str],
    there: dict[str, str],
    missing: tuple[str, ...],
) -> None:
    for name, value in here.items():
        monkeypatch.setenv(f"PIP_{name}", value)
    image = {f"PIP_{name}": value for name, value in there.items()}
    assert pip_settings.own_sources(image) == missing


def test_broken_files_and_addresses(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config.write_text("no section")
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "https://[broken")
    assert pip_settings.own_sources({}) == ("extra-index-url",)
    assert pip_settings.environment(CORP)["PIP_INDEX_URL"] == CORP


def test_the_index_of_a_cell_gets_the_password_of_the_settings(config: Path) -> None:
    signed = CORP.replace("://", "://jane:hunter2@")
    config.write_text(f"[global]\nextra-index-url =\n  https://a.b/simple\n  {signed}/\n")

    assert pip_settings.environment(CORP)["PIP_INDEX_URL"] == f"{signed}/"
    assert pip_settings.environment("https://a.b/simple")["PIP_INDEX_URL"] == "https://a.b/simple"
    assert "PIP_INDEX_URL" not in pip_settings.environment("")


def test_the_index_of_a_cell_has_no_other_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_PYPI_URL", "https://other.corp/simple")

    assert "PIP_PYPI_URL" in pip_settings.environment("")
    assert "PIP_PYPI_URL" not in pip_settings.environment(CORP)
