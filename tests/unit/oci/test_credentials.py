"""Who asks a registry: files and helpers of docker and podman."""

from __future__ import annotations

import base64
import json
import os
import traceback
from pathlib import Path
from typing import Any

import pytest

from ciao_kernel.errors import RegistryFault
from ciao_kernel.oci import credentials
from ciao_kernel.oci.credentials import Credentials
from ciao_kernel.oci.reference import parse

PASSWORD = "hunter2-:ü"
JANE = Credentials("jane", PASSWORD)


def encoded(user: str = "jane", password: str = PASSWORD) -> str:
    return base64.b64encode(f"{user}:{password}".encode()).decode()


class Home:
    """A user's home, and the variables that point into it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.variables = {"HOME": str(folder), "PATH": f"{folder / 'bin'}:{os.environ['PATH']}"}

    def write(self, content: Any, path: str = ".docker/config.json") -> Path:
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content if isinstance(content, str) else json.dumps(content))
        return file

    def helper(self, name: str, script: str) -> None:
        self.write(f"#!/bin/sh\n{script}\n", f"bin/docker-credential-{name}").chmod(0o755)

    def find(self, image: str = "host:5000/team/model") -> Credentials | None:
        return credentials.find(parse(image), self.variables)

    def fault(self, image: str = "host:5000/team/model") -> RegistryFault:
        with pytest.raises(RegistryFault) as raised:
            self.find(image)
        shown = "".join(traceback.format_exception(raised.value)) + repr(raised.value)
        assert "hunter2" not in shown
        assert encoded() not in shown
        return raised.value


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def test_nothing_anywhere(home: Home) -> None:
    assert home.find() is None


@pytest.mark.parametrize(
    "entry",
    [
        {"auth": encoded()},
        {"username": "jane", "password": PASSWORD},
        {"username": "jane", "password": PASSWORD, "auth": encoded()},
        {"username": "jane", "auth": encoded()},
        {"username": "old", "password": "old", "auth": encoded()},
        {"auth": base64.b64encode(f"jane:{PASSWORD}\0\0".encode()).decode()},
    ],
)
def test_all_forms_of_an_entry(home: Home, entry: dict[str, str]) -> None:
    home.write({"auths": {"host:5000": entry}})

    assert home.find() == JANE


def test_an_identity_token(home: Home) -> None:
    home.write({"auths": {"host:5000": {"auth": encoded("u", ""), "identitytoken": "hunter2"}}})

    assert home.find() == Credentials(identity_token="hunter2")


@pytest.mark.parametrize(
    "key",
    [
        "host:5000",
        "https://host:5000",
        "http://host:5000",
        "https://host:5000/",
        "https://host:5000/v1/",
        "https://host:5000/v2/",
        "host:5000/team",
        "host:5000/team/model",
    ],
)
def test_all_forms_of_a_key(home: Home, key: str) -> None:
    home.write({"auths": {key: {"auth": encoded()}}})

    assert home.find() == JANE


@pytest.mark.parametrize(
    "key", ["host", "host:5001", "host:5000/tea", "host:5000/other", "ost:5000"]
)
def test_keys_of_others(home: Home, key: str) -> None:
    home.write({"auths": {key: {"auth": encoded()}}})

    assert home.find() is None


@pytest.mark.parametrize(
    "key",
    ["https://index.docker.io/v1/", "index.docker.io", "docker.io", "registry-1.docker.io"],
)
def test_docker_hub(home: Home, key: str) -> None:
    home.write({"auths": {key: {"auth": encoded()}}})

    assert home.find("python") == JANE
    assert home.find("ghcr.io/python") is None


def test_the_longest_key_wins(home: Home) -> None:
    home.write(
        {
            "auths": {
                "host:5000": {"auth": encoded("host")},
                "host:5000/team": {"auth": encoded("team")},
                "host:5000/team/other": {"auth": encoded("other")},
            }
        }
    )

    found = home.find()
    assert found is not None
    assert found.user == "team"


def test_podmans_files_come_before_dockers(home: Home) -> None:
    def user() -> str:
        found = home.find()
        assert found is not None
        return found.user

    home.write({"auths": {"host:5000": {"auth": encoded("docker")}}})
    assert user() == "docker"
    home.write({"auths": {"host:5000": {"auth": encoded("home")}}}, ".config/containers/auth.json")
    assert user() == "home"
    home.variables["XDG_RUNTIME_DIR"] = str(home.folder / "run")
    home.write({"auths": {"host:5000": {"auth": encoded("run")}}}, "run/containers/auth.json")
    assert user() == "run"
    file = home.write({"auths": {"host:5000": {"auth": encoded("named")}}}, "named.json")
    home.variables["REGISTRY_AUTH_FILE"] = str(file)
    assert user() == "named"


def test_a_file_without_the_registry_is_passed_over(home: Home) -> None:
    home.write({"auths": {"other": {"auth": encoded()}}}, ".config/containers/auth.json")
    home.write({"auths": {"host:5000": {"auth": encoded()}}}, "docker/config.json")
    home.variables["DOCKER_CONFIG"] = str(home.folder / "docker")

    assert home.find() == JANE


@pytest.mark.parametrize("content", ["", " \n", "{}", '{"auths": null}', '{"auths": []}'])
def test_files_with_nothing(home: Home, content: str) -> None:
    home.write(content)

    assert home.find() is None


@pytest.mark.parametrize("entry", [{}, {"auth": ""}, {"email": "x"}, None, "text"])
def test_entries_with_nothing(home: Home, entry: Any) -> None:
    home.write({"auths": {"host:5000": entry, "https://host:5000/v1/": {"auth": encoded()}}})

    assert home.find() == JANE


@pytest.mark.parametrize("content", ["{", "[]", '"hunter2"', "\x00", "[" * 100_000])
def test_a_broken_file_is_named(home: Home, content: str) -> None:
    file = home.write(content)

    assert home.fault().message == (
        f"the registry credentials in {file} cannot be read: it is not a JSON object."
    )


def test_a_file_that_is_a_folder_is_named(home: Home) -> None:
    (home.folder / ".docker/config.json").mkdir(parents=True)

    assert "Is a directory" in home.fault().message


@pytest.mark.parametrize(
    "auth", ["hunter2", "h*nter2=", base64.b64encode(b"\xff\xfe").decode(), "ü"]
)
def test_a_broken_entry_is_named(home: Home, auth: str) -> None:
    home.write({"auths": {"https://host:5000": {"auth": auth}}})

    assert "entry https://host:5000 are not base64" in home.fault().message


ANSWERS = f"""read server
case "$server" in
host:5000) printf '%s' '{json.dumps({"ServerURL": "x", "Username": "jane", "Secret": PASSWORD})}';;
https://index.docker.io/v1/) echo '{{"Username": "hub", "Secret": "s"}}';;
token.io) echo '{{"Username": "<token>", "Secret": "hunter2"}}';;
*) echo "credentials not found in native keychain"; exit 1;;
esac"""


def test_a_helper_for_all(home: Home) -> None:
    home.helper("all", ANSWERS)
    home.write({"credsStore": "all", "auths": {"host:5000": {}, "own.io": {"auth": encoded()}}})

    assert home.find() == JANE
    assert home.find("python") == Credentials("hub", "s")
    assert home.find("token.io/a") == Credentials(identity_token="hunter2")
    assert home.find("other.io/a") is None
    assert home.find("own.io/a") == JANE


@pytest.mark.parametrize("key", ["https://index.docker.io/v1/", "index.docker.io", "docker.io"])
def test_a_helper_for_docker_hub(home: Home, key: str) -> None:
    home.helper("one", ANSWERS)
    home.write({"credHelpers": {key: "one"}})

    assert home.find("python") == Credentials("hub", "s")
    assert home.find("host:5000/a") is None


def test_a_helper_for_one_registry_comes_before_that_for_all(home: Home) -> None:
    home.helper("one", ANSWERS)
    home.helper("all", "exit 3")
    home.write({"credHelpers": {"host:5000": "one"}, "credsStore": "all"})

    assert home.find() == JANE


def test_an_entry_helps_out_where_a_helper_is_broken(home: Home) -> None:
    home.write({"credsStore": "gone", "auths": {"host:5000": {"auth": encoded()}}})

    assert home.find() == JANE
    assert "docker-credential-gone, which is not on the PATH" in home.fault("x.io/a").message


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("echo hunter2; echo hunter2 >&2; exit 3", "failed with exit code 3"),
        ("echo hunter2", "something that is not credentials"),
        ("echo '[1]'", "something that is not credentials"),
        ('echo \'{"Username": "hunter2"}\'', "something that is not credentials"),
        ("kill -9 $$", "failed with exit code -9"),
    ],
)
def test_a_broken_helper_is_named(home: Home, script: str, why: str) -> None:
    home.helper("bad", script)
    home.write({"credHelpers": {"host:5000": "bad"}})

    fault = home.fault()
    assert fault.message.startswith("docker-credential-bad ")
    assert why in fault.message
    assert fault.hint == "Try it: echo host:5000 | docker-credential-bad get"


def test_a_helper_that_hangs(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(credentials, "_HELPER_SECONDS", 0.2)
    home.helper("slow", "exec sleep 60")
    home.write({"credHelpers": {"host:5000": "slow"}})

    assert "did not answer" in home.fault().message


@pytest.mark.parametrize("name", ["../evil", "a/b", "a b", "", 3])
def test_a_helper_is_a_name_and_no_path(home: Home, name: Any) -> None:
    home.helper("../../evil", "touch ran")
    home.write({"credHelpers": {"host:5000": name}})

    if name:
        assert "not on the PATH" in home.fault().message
    else:
        assert home.find() is None


def test_a_secret_of_the_cluster_runs_nothing(home: Home, tmp_path: Path) -> None:
    config = {"credHelpers": {"host:5000": "one"}, "credsStore": "one"}
    home.helper("one", f"touch {tmp_path}/ran")

    assert credentials.of(config, parse("host:5000/a"), "Secret push") is None
    assert not (tmp_path / "ran").exists()


def test_secrets_are_not_shown() -> None:
    assert "hunter2" not in repr(Credentials("jane", "hunter2", "hunter2"))
