"""``ciao config``: the user's file is changed with care; a broken one blocks nothing it needn't."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from tests.integration.cli.command import QUICK, User


def value(ciao: User, name: str, **env: str) -> str:
    rows = ciao("config", "-o", "json", env=env).json
    return str(next(row["value"] for row in rows if row["name"] == name))


def write(ciao: User, text: str) -> None:
    ciao.config.parent.mkdir(parents=True, exist_ok=True)
    ciao.config.write_bytes(text.encode())


def test_all_settings_are_shown_with_their_places(ciao: User) -> None:
    write(ciao, "color = 'never'\n")
    rows = {row["name"]: row for row in ciao("config", "--output", "json").json}
    assert rows["color"]["origin"] == str(ciao.config)
    assert rows["storage"] == {**rows["storage"], "origin": "$CIAO_STORAGE"}
    assert rows["linger"]["origin"] == "built-in"
    text = ciao("config").out
    assert text.splitlines()[0].split() == ["SETTING", "VALUE", "FROM", "WHAT", "IT", "IS"]
    assert all(name in text for name in rows)


def test_a_change_is_saved_for_all_kernels_and_terminals(ciao: User) -> None:
    done = ciao("config", "color=never", "stopGrace=2.5")
    assert (done.code, done.out) == (0, f"saved in {ciao.config}\n")
    assert ciao.config.read_text() == 'color = "never"\nstopGrace = 2.5\n'
    assert value(ciao, "color") == "never"
    changed = ciao("config", "linger=3", "-o", "json").json
    assert [(row["name"], row["value"]) for row in changed] == [("linger", "3")]


def test_other_lines_comments_and_spellings_stay(ciao: User) -> None:
    write(
        ciao,
        "# mine\r\n"
        'color = "auto"  # why not\r\n'
        "on-shutdown = 'leave'\r\n"
        '"stop_grace" = 4 # seconds\r\n'
        "\r\n"
        "linger=2",
    )
    words = ["color=always", "onShutdown=delete", "STOP_GRACE=7", "line-limit=500", "LINGER=9"]
    assert ciao("config", *words).code == 0
    assert ciao.config.read_bytes().decode() == (
        "# mine\r\n"
        'color = "always"  # why not\r\n'
        'on-shutdown = "delete"\r\n'
        '"stop_grace" = 7 # seconds\r\n'
        "\r\n"
        "linger=9\r\n"
        "lineLimit = 500\r\n"
    )
    assert value(ciao, "onShutdown") == "delete"


def test_a_key_that_is_spelt_twice_is_changed_twice(ciao: User) -> None:
    write(ciao, "on-shutdown = 'leave'\nonShutdown = 'auto'\n")
    assert ciao("config", "on_shutdown=delete").code == 0
    assert value(ciao, "onShutdown") == "delete"


def test_a_new_key_is_put_in_front_of_a_table(ciao: User) -> None:
    write(ciao, "[elsewhere]\ncolor = 'x'\n")
    assert ciao("config", "color=never").code == 0
    assert ciao.config.read_text() == "color = \"never\"\n[elsewhere]\ncolor = 'x'\n"


def test_tables_and_arrays_keep_their_form(ciao: User) -> None:
    write(
        ciao,
        "plain-registries = [\r\n"
        '  "a:5000", # first\r\n'
        "]\r\n"
        "# for all\r\n"
        "[images]\r\n"
        'PyTorch = "p:1" # old\r\n'
        'jax = "j:1"\r\n',
    )
    assert value(ciao, "images") == "pytorch=p:1 jax=j:1"
    assert value(ciao, "plainRegistries") == "a:5000"
    words = ["images=pytorch=p:2 tensorflow=t:1", "plainRegistries=a:5000 b", "color=never"]
    assert ciao("config", *words).code == 0
    assert ciao.config.read_bytes().decode() == (
        "plain-registries = [\r\n"
        '  "a:5000", # first\r\n'
        '  "b",\r\n'
        "]\r\n"
        "# for all\r\n"
        'color = "never"\r\n'
        "[images]\r\n"
        'PyTorch = "p:2" # old\r\n'
        'tensorflow = "t:1"\r\n'
    )
    assert value(ciao, "images") == "pytorch=p:2 tensorflow=t:1"
    assert value(ciao, "plainRegistries") == "a:5000 b"


def test_new_tables_and_arrays_have_their_own_form_and_texts_stay_texts(ciao: User) -> None:
    write(ciao, 'images = "jax=j"\n')
    assert ciao("config", "images=jax=k pytorch=p", "plainRegistries=a").code == 0
    assert ciao.config.read_text() == 'images = "jax=k pytorch=p"\nplainRegistries = ["a"]\n'
    ciao.config.unlink()
    assert ciao("config", "images=jax=k").code == 0
    assert ciao.config.read_text() == 'images = {jax = "k"}\n'


@pytest.mark.parametrize(
    "name", ['a "quoted" one', "back\\slash", "# no comment", "ü 😀", "='x'.y"]
)
def test_every_character_of_a_value_survives(ciao: User, name: str) -> None:
    folder = ciao.root / name
    assert ciao("config", f"storage={folder}", env={"CIAO_STORAGE": "/tmp/x"}).code == 0
    assert ciao("config", "color=auto").code == 0
    del ciao.env["CIAO_STORAGE"]
    assert value(ciao, "storage") == str(folder)


def test_a_relative_folder_is_saved_as_it_was_meant(ciao: User) -> None:
    del ciao.env["CIAO_STORAGE"]
    assert ciao("config", "storage=jobs here").code == 0
    assert value(ciao, "storage") == str(ciao.folder / "jobs here")


def test_a_variable_that_wins_is_named(ciao: User) -> None:
    done = ciao("config", "color=never", env={"CIAO_COLOR": "always"})
    assert "$CIAO_COLOR is set in this terminal, and overrides the file there." in done.out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["colr=never"], "Did you mean color?"),
        (["color=blue"], "expected one of auto, always, never"),
        (["stopGrace=-1"], "number"),
        (["color"], "is not of the form key=value"),
        (["color", "=", "never"], "is not of the form key=value"),
        (["=x"], "is not of the form key=value"),
        (["color=never", "linger=x"], "linger cannot be 'x'"),
    ],
)
def test_a_bad_change_is_refused_and_nothing_is_written(
    ciao: User, words: list[str], says: str
) -> None:
    write(ciao, "# mine\n")
    done = ciao("config", *words)
    assert done.code == 2
    assert says in done.err
    assert ciao.config.read_text() == "# mine\n"


def test_a_file_that_is_written_too_cleverly_is_not_touched(ciao: User) -> None:
    text = "linger = 1\n[color]\n"
    write(ciao, text)
    done = ciao("config", "color=never")
    assert done.code == 2
    assert 'Open it and write: color = "never"' in done.err
    assert ciao.config.read_text() == text


def test_links_and_rights_of_the_file_stay(ciao: User) -> None:
    real = ciao.root / "dotfiles.toml"
    real.write_text("linger = 2\n")
    real.chmod(0o640)
    ciao.config.parent.mkdir(parents=True)
    ciao.config.symlink_to(real)
    assert ciao("config", "linger=3").code == 0
    assert ciao.config.is_symlink()
    assert real.read_text() == "linger = 3\n"
    assert stat.S_IMODE(real.stat().st_mode) == 0o640
    assert [path.name for path in ciao.config.parent.iterdir()] == ["config.toml"]


def test_a_place_that_cannot_be_written_is_said(ciao: User) -> None:
    ciao.config.parent.parent.mkdir(parents=True)
    ciao.config.parent.write_text("a file where a folder should be")
    done = ciao("config", "color=never")
    assert done.code != 0
    assert str(ciao.config) in done.err


BROKEN = "color = 'never'\nlinger = = 2\n"
WRONG = "color = 'blue'\n"


@pytest.mark.parametrize("text", [BROKEN, WRONG])
def test_a_broken_file_stops_jobs_and_not_help(ciao: User, text: str) -> None:
    ciao.file("train.py", QUICK)
    write(ciao, text)
    for words in (["run", "train.py"], ["jobs"], ["logs", "x"]):
        done = ciao(*words)
        assert (done.code, done.out) == (2, "")
        assert str(ciao.config) in done.err
    for words in (["--help"], ["run", "--help"], ["--version"], ["magics"], ["magics", "worker"]):
        assert ciao(*words).code == 0
    shown = ciao("config")
    assert shown.code == 2
    assert str(ciao.storage) in shown.out  # what can be known is shown
    assert str(ciao.config) in shown.err
    examined = ciao("doctor")
    assert examined.code == 1
    assert str(ciao.config) in next(
        line for line in examined.out.splitlines() if line.startswith("wrong")
    )


def test_a_wrong_value_can_be_overwritten_and_a_broken_line_is_for_its_author(ciao: User) -> None:
    write(ciao, WRONG)
    assert ciao("config", "color=never").code == 0
    assert value(ciao, "color") == "never"
    write(ciao, BROKEN)
    done = ciao("config", "linger=2")
    assert done.code == 2
    assert "line 2" in done.err
    assert ciao.config.read_text() == BROKEN


def test_a_wrong_variable_is_named(ciao: User) -> None:
    done = ciao("jobs", env={"CIAO_COLOR": "bleu"})
    assert done.code == 2
    assert "$CIAO_COLOR" in done.err
    assert Path(value(ciao, "storage", CIAO_LINGER="1")) == ciao.storage
