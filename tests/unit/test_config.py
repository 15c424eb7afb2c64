"""Settings: which place wins, where each value came from, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ciao_kernel.config import Settings, config_files, load, shown_name
from ciao_kernel.errors import SettingError
from ciao_kernel.model import CleanPolicy

NAMES = [row[0] for row in Settings().rows()]


def rows(made: Settings) -> dict[str, tuple[str, str]]:
    return {name: (value, origin) for name, value, origin, _ in made.rows()}


def file(folder: Path, text: str, name: str = "config.toml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def refused(**values: Any) -> SettingError:
    with pytest.raises(SettingError) as caught:
        Settings().with_values(values, "the test")
    assert caught.value.message.startswith("the test: ")
    assert "%ciao config" in caught.value.hint
    return caught.value


def test_each_place_overrides_the_one_before(tmp_path: Path) -> None:
    admin = file(tmp_path, 'backend = "a"\nbuilder = "a"\nframework = "a"\npython = "a"', "a.toml")
    user = file(tmp_path, 'builder = "u"\nframework = "u"\npython = "u"', "u.toml")
    made = load([admin, user], {"CIAO_FRAMEWORK": "e", "CIAO_PYTHON": "e", "CIAO_JOB": "x"})
    made = made.with_values({"python": "k"}, "%ciao config")
    seen = rows(made)
    assert seen["backend"] == ("a", str(admin))
    assert seen["builder"] == ("u", str(user))
    assert seen["framework"] == ("e", "$CIAO_FRAMEWORK")
    assert seen["python"] == ("k", "%ciao config")
    assert seen["linger"] == ("1", "built-in")


def test_no_place_at_all_gives_the_built_in_values(tmp_path: Path) -> None:
    made = load([tmp_path / "none.toml"], {})
    assert made == Settings()
    assert {origin for _, origin in rows(made).values()} == {"built-in"}
    assert all(help_ for *_, help_ in made.rows())


def test_the_places_follow_xdg(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert config_files() == (Path("/etc/ciao/config.toml"), tmp_path / "config/ciao/config.toml")
    assert Settings().storage == tmp_path / "state" / "ciao"
    monkeypatch.delenv("XDG_CONFIG_HOME")
    monkeypatch.delenv("XDG_STATE_HOME")
    assert config_files()[1] == Path.home() / ".config/ciao/config.toml"
    assert Settings().storage == Path.home() / ".local/state/ciao"


@pytest.mark.parametrize("name", ["onShutdown", "on_shutdown", "on-shutdown", "ONSHUTDOWN"])
def test_names_in_any_form(name: str) -> None:
    assert Settings().with_values({name: "leave"}, "x").on_shutdown == "leave"
    assert shown_name("on_shutdown") == "onShutdown"


def test_values_of_a_file_keep_their_kind(tmp_path: Path) -> None:
    made = load(
        [
            file(
                tmp_path,
                'storage = "/data/my jobs"\nstopGrace = 2.5\nlinger = 0\nlocal-replicas = 3\n'
                'cleanPolicy = "None"\ncolor = "never"\n',
            )
        ],
        {},
    )
    assert made.storage == Path("/data/my jobs")
    assert (made.stop_grace, made.linger, made.local_replicas) == (2.5, 0.0, 3.0)
    assert made.clean_policy is CleanPolicy.NONE
    assert made.color == "never"


def test_a_home_is_understood() -> None:
    assert Settings().with_values({"storage": "~/jobs"}, "x").storage == Path.home() / "jobs"


BAD = {
    "backend": ["two\nlines", ["a"]],
    "builder": ["\x1b[31m", {"a": 1}],
    "framework": ["a\0b"],
    "python": ["a\nb"],
    "cleanPolicy": ["", "some", "all none", 3],
    "api": ["", "v2", "v1 job", 1],
    "onShutdown": ["", "maybe"],
    "localNetwork": ["", "none"],
    "storage": ["", "  ", "a\nb", "~nobody-of-this-name/x", ["/a"]],
    "stopGrace": ["", "soon", "-1", "nan", "inf", "1e99", "1 2"],
    "linger": ["-0.1", "x"],
    "warmMost": ["59", "x"],
    "shutdownWait": ["-1", "1s"],
    "localReplicas": ["0", "many"],
    "context": ["a\nb"],
    "namespace": ["a\nb", ["a"], "Team A"],
    "queue": ["a\nb", ["a"]],
    "gangScheduler": ["a\nb", ["a"]],
    "gangQueue": ["a\0b", ["a"]],
    "images": ["tensorflow", "=image", "tensorflow=", "tensorflow = x", "jax=a:1,python=b:1"],
    "tensorboardUrl": ["proxy/%PORT%/", "/proxy/8888/", "javascript:%PORT%", ["/%PORT%/"]],
    "volumes": ["claim", "claim=", "claim=relative", "=/data", "a=/x,b=/y", "a=/x,nfs://s/E=/y"],
    "checkpoint": ["Claim", "claim/", "claim/../x", "two words"],
    "cpuRequest": ["much", "4Gi", "-1", "0m", ["1"]],
    "clusterPython": ["a\0b"],
    "ttl": ["-1", "1d"],
    "requestPatience": ["-1", "long"],
    "followPatience": ["0", "long"],
    "hopelessWait": ["-1", "soon"],
    "architecture": ["a\nb", "x86_64"],
    "registry": ["a\nb", "https://host/path", "[::1", "[::1]x/a", "registry.example.com", "h/a:1"],
    "outputStore": [
        "bucket",
        "s3://",
        "https://host",
        "s3://a/../b",
        "https://u:p@h/b",
        "s3://b?x",
    ],
    "outputClaim": ["Claim", "claim/", "claim/../x", "two words"],
    "jobVolumes": ["data", "data:../x", "a:x b:x", "tmp:x:ro", ["a:x b:y"], ["a:x", 1], 3],
    "hostFolders": ["data", "/a/../b", ["/a b"], "/a,/b"],
    "plainRegistries": ["http://host", "host/path", ["a b"], "a:5,b"],
    "registryAuthority": ["a\0b"],
    "pushSecret": ["a\nb", "a b"],
    "pipSecret": ["a\0b", "a b"],
    "s2iBuilder": ["a\nb"],
    "kanikoImage": ["a\0b"],
    "buildDeadline": ["0", "1h"],
    "buildCpu": ["a\nb", "two"],
    "buildMemory": ["a\0b", "4GB", "4"],
    "cacheDays": ["0", "-1", "week"],
    "inspect": ["", "true", "maybe"],
    "usage": ["", "true", "maybe"],
    "silence": ["-1", "5m"],
    "debugWait": ["0", "10m"],
    "color": ["red", "true"],
    "outputRate": ["999", "fast"],
    "outputLimit": ["1", "-5"],
    "lines": ["0", "some", "-1", "100001"],
    "lineLimit": ["79", "long"],
    "fetchWait": ["0", "soon"],
    "fetchLimit": ["999", "10GB"],
}


def test_every_setting_has_values_that_it_refuses() -> None:
    assert set(BAD) == set(NAMES)
    for name, values in BAD.items():
        for value in values:
            error = refused(**{name: value})
            assert f"{name} cannot be" in error.message
            assert ": expected " in error.message


def test_a_misspelt_variable_is_refused_and_others_are_not() -> None:
    with pytest.raises(SettingError) as caught:
        load([], {"CIAO_NAMESPCE": "team"})
    assert caught.value.message == "$CIAO_NAMESPCE: there is no such setting."
    assert "Did you mean CIAO_NAMESPACE?" in caught.value.hint
    # Kubernetes and ciao itself set these.
    others = (
        "CIAO_SERVICE_HOST", "CIAO_PORT_80_TCP", "CIAO_ROLE", "CIAO_JOB_ID", "CIAO_REPLICA",
        "CIAO_S2I_BUILDER_PORT", "CIAO_REGISTRY_SERVICE_HOST",
    )  # fmt: skip
    theirs = ("CIAOX", "CIAO_IMAGE", "CIAO_STORAGE_DIR", "CIAO_PULL_SECRET", "CIAO_JOB_NAMESPACE")
    assert load([], dict.fromkeys((*others, *theirs), "x")) == Settings()
    for slip in ("CIAO_STOPGRACE", "CIAO_BACKND", "CIAO_PIP_SECRRET", "CIAO_REGISTY"):
        with pytest.raises(SettingError, match="no such setting"):
            load([], {slip: "x"})


def test_an_unknown_name_offers_the_nearest() -> None:
    error = refused(stop_grade="1")
    assert "unknown setting 'stop_grade'" in error.message
    assert error.hint.startswith("Did you mean stopGrace?")
    assert refused(zzz="1").hint == "`%ciao config` shows all settings."


@pytest.mark.parametrize("text", ["backend = ", "a = 1\na = 2", "\xff", "[", 'backend = "a'])
def test_a_broken_file_is_named(tmp_path: Path, text: str) -> None:
    path = file(tmp_path, text)
    with pytest.raises(SettingError) as caught:
        load([path], {})
    assert str(path) in caught.value.message


def test_a_file_of_other_bytes_or_none_at_all(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SettingError, match="cannot be read"):
        load([path], {})
    with pytest.raises(SettingError, match="Is a directory"):
        load([tmp_path], {})


def test_a_wrong_value_names_its_place(tmp_path: Path) -> None:
    path = file(tmp_path, "[kernel]\nbackend = 'x'")
    with pytest.raises(SettingError, match="unknown setting 'kernel'") as caught:
        load([path], {})
    assert str(path) in caught.value.message
    with pytest.raises(SettingError, match=r"^\$CIAO_LINGER: linger cannot be 'x'"):
        load([], {"CIAO_LINGER": "x"})


def test_no_password_of_an_address_is_shown() -> None:
    with pytest.raises(SettingError, match="registry cannot be") as caught:
        load([], {"CIAO_REGISTRY": "https://ada:hunter2@registry.example/team"})
    assert "hunter2" not in caught.value.message


def test_every_setting_has_its_variable() -> None:
    for name, value, *_ in Settings().rows():
        variable = "CIAO_" + "".join(f"_{c}" if c.isupper() else c.upper() for c in name)
        made = load([], {variable: value})
        assert rows(made)[name] == (value, f"${variable}")


words = st.text(st.characters(categories=["L", "N", "P", "S"]), max_size=20)
numbers = st.floats(1000, 1e9).filter(lambda value: value == value)


@settings(deadline=None)
@given(
    st.fixed_dictionaries(
        {},
        optional={
            "backend": words,
            "python": words,
            "storage": words.map(lambda word: f"/data/a {word}".rstrip()),
            "stopGrace": numbers,
            "linger": st.integers(0, 10**9),
            "outputRate": numbers,
            "color": st.sampled_from(["auto", "always", "never", "Never"]),
            "cleanPolicy": st.sampled_from(["running", "all", "none", "ALL"]),
        },
    )
)
def test_what_is_shown_can_be_set_again(values: dict[str, Any]) -> None:
    made = Settings().with_values(values, "x")
    again = Settings().with_values({name: value for name, value, *_ in made.rows()}, "x")
    assert again == made.with_values({name: value for name, value, *_ in made.rows()}, "x")
    for name, value in values.items():
        if isinstance(value, float):
            assert float(rows(again)[name][0]) == value
