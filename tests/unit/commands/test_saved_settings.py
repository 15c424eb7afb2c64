"""``ciao config`` for each setting: the file that it writes is read as the values that it set."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from ciao_kernel import commands, config
from ciao_kernel.commands import config as verb
from ciao_kernel.config import Settings
from ciao_kernel.session.plugin_registry import Registry

TYPED = {
    "backend": ["local"],
    "builder": ["kaniko"],
    "framework": ["pytorch"],
    "python": ["~/my env/bin/python"],
    "cleanPolicy": ["all"],
    "onShutdown": ["leave"],
    "storage": ["/data/my jobs"],
    "stopGrace": ["2.5", "3"],
    "linger": ["0"],
    "warmMost": ["60"],
    "shutdownWait": ["1e-05"],
    "localReplicas": ["3"],
    "localNetwork": ["isolated"],
    "context": ["a@b"],
    "namespace": ["007"],
    "api": ["job"],
    "queue": ["q"],
    "gangScheduler": ["volcano"],
    "gangQueue": ["q"],
    "images": ["", "PyTorch=a/b:1 python=a/c:1"],
    "volumes": ["", "train=/d nfs://files/Export=/e", "storage=/data/storage 'a b=/c d'"],
    "jobVolumes": ["", "train:data tmp:scratch", "'train/a b:data:ro' nfs://s/E:e tmp:1Gi:t"],
    "hostFolders": ["", "/a /b"],
    "checkpoint": ["claim/x", "~/x"],
    "cpuRequest": ["0", "0.5", "100m"],
    "clusterPython": ["python3.12"],
    "ttl": ["3600"],
    "requestPatience": ["3"],
    "followPatience": ["30"],
    "hopelessWait": ["3"],
    "architecture": ["arm64"],
    "registry": ["h/p"],
    "plainRegistries": ["", "a:5 b"],
    "registryAuthority": ["~/x"],
    "pushSecret": ["s"],
    "pipSecret": ["s"],
    "s2iBuilder": ["x"],
    "kanikoImage": ["x"],
    "buildDeadline": ["60"],
    "buildCpu": ["2"],
    "buildMemory": ["4Gi"],
    "cacheDays": ["3"],
    "inspect": ["off"],
    "silence": ["0"],
    "debugWait": ["3"],
    "color": ["never"],
    "lines": ["all", "50"],
    "usage": ["on"],
    "outputRate": ["400000"],
    "outputLimit": ["1000000"],
    "lineLimit": ["100"],
    "tensorboardUrl": ["/p/%PORT%/"],
    "fetchWait": ["3"],
    "fetchLimit": ["5000"],
    "outputStore": ["s3://b/p"],
    "outputClaim": ["c/x"],
}


class User:
    """A user's settings file, and the command that changes it."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def config(self, change: str, before: str = "") -> str:
        """Change a file in a terminal; return its text, after a comparison with the change."""
        self.file.write_bytes(before.encode())
        session = SimpleNamespace(settings=Settings(), registry=Registry({}))
        caller = commands.Caller(
            session,  # type: ignore[arg-type]
            None,  # type: ignore[arg-type]
            lambda text: None,
            self.file.parent,
            terminal=True,
        )
        asyncio.run(verb.run(commands.parse(["config", change], lambda text: None), caller))
        loaded = config.load([self.file], {})
        assert replace(loaded, origins={}) == replace(session.settings, origins={})
        return self.file.read_bytes().decode()


@pytest.fixture
def user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> User:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    _, file = config.config_files()
    file.parent.mkdir()
    return User(file)


def test_each_setting_has_values_here() -> None:
    assert [*TYPED] == [name for name, *_ in Settings().rows()]


@pytest.mark.parametrize(
    "change", [f"{name}={value}" for name, values in TYPED.items() for value in values]
)
def test_a_saved_value_is_loaded_again(user: User, change: str) -> None:
    user.config(change)


@pytest.mark.parametrize("name", [*TYPED])
def test_an_empty_value_resets_a_setting(user: User, name: str) -> None:
    def value() -> str:
        rows = config.load([user.file], {}).rows()
        return next(shown for one, shown, *_ in rows if one == name)

    user.file.write_text("")
    default = value()
    text = user.config(f"{name}={next(filter(None, TYPED[name]))}")
    assert value() != default
    user.config(f"{name}=", text)
    assert value() == default


@pytest.mark.parametrize(
    ("change", "before", "after"),
    [
        ("lines=", "# first\nlines = 50 # few\n# mine\n", "# first\n# mine\n"),
        ("on-shutdown=", "onShutdown = 'leave'\r\n# mine", "# mine"),
        ("color=", "# mine", "# mine"),
        ("jobVolumes=a:b tmp:c", "", 'jobVolumes = ["a:b", "tmp:c"]\n'),
        ("jobVolumes=a:b tmp:c", "jobVolumes = 'd:e'\n", 'jobVolumes = "a:b tmp:c"\n'),
        ("lines=all", "", 'lines = "all"\n'),
        ("lines=all", "lines = 50 # few\n", 'lines = "all" # few\n'),
        ("lines=50", "lines = 'all'\n", "lines = 50\n"),
        ("stopGrace=2.5", "", "stopGrace = 2.5\n"),
        (
            "volumes=nfs://s/E=/e",
            "[volumes]\n'nfs://s/E' = '/d'\n",
            "[volumes]\n'nfs://s/E' = \"/e\"\n",
        ),
        (
            "volumes=nfs://s/e=/e",
            "[volumes]\n'nfs://s/E' = '/d'\n",
            '[volumes]\n"nfs://s/e" = "/e"\n',
        ),
        (
            "volumes=a=/b queue=/c",
            "[volumes]\na = '/b'\n",
            'volumes.a = "/b"\nvolumes.queue = "/c"\n',
        ),
        (
            "volumes=a=/b volumes=/c",
            "[volumes]\na = '/b'\n",
            '[volumes]\na = "/b"\nvolumes = "/c"\n',
        ),
        ("images=python=b:1", "[images]\npython = 'a:1'\n", 'images.python = "b:1"\n'),
    ],
)
def test_the_form_in_the_file(user: User, change: str, before: str, after: str) -> None:
    assert user.config(change, before) == after
