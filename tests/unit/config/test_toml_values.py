"""Values of a settings file that are not text: numbers, tables, arrays, and what is refused."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from ciao_kernel.config import Settings, load
from ciao_kernel.errors import SettingError

NAMES = [name for name, *_ in Settings().rows()]


def read(folder: Path, text: str) -> Settings:
    file = folder / "config.toml"
    file.write_text(text)
    return load([file], {})


@pytest.mark.parametrize(
    "text",
    [
        'images = {TensorFlow = "t:2", pytorch = "h:5/p@sha256:0=1"}',
        '[Images]\nTENSORFLOW = "t:2"\npytorch = "h:5/p@sha256:0=1"\n',
        'images.tensorflow = "t:2"\nimages."pytorch" = "h:5/p@sha256:0=1"\n',
        'images = "tensorflow=t:2 PyTorch=h:5/p@sha256:0=1"',
    ],
)
def test_images_in_each_form(tmp_path: Path, text: str) -> None:
    made = read(tmp_path, text)
    assert made.images == {"tensorflow": "t:2", "pytorch": "h:5/p@sha256:0=1"}
    assert made.origins["images"] == str(tmp_path / "config.toml")
    assert ("images", "tensorflow=t:2 pytorch=h:5/p@sha256:0=1") in [row[:2] for row in made.rows()]


@pytest.mark.parametrize(
    "text",
    ['plainRegistries = [\n  "a:5000",\n  "b", # c\n]', 'plain-registries = "a:5000 b"'],
)
def test_hosts_in_each_form(tmp_path: Path, text: str) -> None:
    assert read(tmp_path, text).plain_registries == ("a:5000", "b")


def test_empty_forms_are_no_images_and_no_hosts(tmp_path: Path) -> None:
    made = read(tmp_path, "images = {}\nplainRegistries = []")
    assert (made.images, made.plain_registries) == ({}, ())


def test_numbers_are_read_for_texts_and_numbers(tmp_path: Path) -> None:
    made = read(tmp_path, "buildCpu = 2\nttl = 0x10\nlinger = '3'")
    assert (made.build_cpu, made.ttl, made.linger) == ("2", 16.0, 3.0)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("true", "true"),
        ("[[]]", "[[]]"),
        ("[1, 'a']", "[1, 'a']"),
        ("{a = 1, b = 'c'}", "{a = 1, b = 'c'}"),
        ("2026-01-31", "2026-01-31"),
        ("07:32:00", "07:32:00"),
        ("[{a = false}]", "[{a = false}]"),
    ],
)
def test_every_setting_refuses_other_values(
    tmp_path: Path, name: str, value: str, shown: str
) -> None:
    with pytest.raises(SettingError) as caught:
        read(tmp_path, f"{name} = {value}")
    start = f"{tmp_path / 'config.toml'}: {name} cannot be {shown}: expected "
    assert caught.value.message.startswith(start)


@pytest.mark.parametrize(
    "value",
    [
        "['a']", "{tensorflow = ''}", "{'' = 'a'}", "{tensorflow = 'a b'}", "{tensorflow = ' a'}",
        "{tensorflow = 'a pytorch=b'}", "{'a b' = 'c'}", "{'a=b' = 'c'}", "{a = ['b']}",
        "{a = {b = 'c'}}", "{a = true}",
    ],
)  # fmt: skip
def test_images_that_no_text_could_give_are_refused(tmp_path: Path, value: str) -> None:
    with pytest.raises(SettingError, match=r'expected .* a table \{FRAMEWORK = "IMAGE"\}'):
        read(tmp_path, f"images = {value}")


@pytest.mark.parametrize(
    "value", ["{a = 'b'}", "['']", "['a b']", "[' a']", "['http://a']", "['a', ['b']]", "[1]"]
)
def test_hosts_that_no_text_could_give_are_refused(tmp_path: Path, value: str) -> None:
    with pytest.raises(SettingError, match=r'expected .* an array \["HOST", "HOST:PORT"\]'):
        read(tmp_path, f"plainRegistries = {value}")


@pytest.mark.parametrize("name", [name for name in NAMES if name != "images"])
def test_a_table_for_another_setting_is_refused(tmp_path: Path, name: str) -> None:
    values: dict[str, Any] = tomllib.loads(f"[{name}]\na = 'b'")
    with pytest.raises(SettingError, match=f"^a place: {name} cannot be .*: expected "):
        Settings().with_values(values, "a place")


@pytest.mark.parametrize(
    ("text", "line", "name"),
    [
        ('[images]\npytorch = "p:1"\nnamespace = "x"\n', 3, "namespace"),
        ('ttl = 1\r\n\r\n[ Images ] # all\r\n"push-secret" = "x"\r\n', 4, "push-secret"),
        ("['images']\n# namespace = 'y'\ntensorflow = 't'\nttl = 3600\nlinger=2", 4, "ttl"),
        ("[images]\n  plainRegistries = [\n 'a'\n]", 2, "plainRegistries"),
        ("namespace = 'a'\n[images]\nnamespace = 'b'", 3, "namespace"),
    ],
)
def test_a_setting_below_a_table_is_refused(
    tmp_path: Path, text: str, line: int, name: str
) -> None:
    with pytest.raises(SettingError) as caught:
        read(tmp_path, text)
    place = f"{tmp_path / 'config.toml'}, line {line}: the setting {name} is below [images], "
    assert caught.value.message.lower().startswith(place.lower())
    assert caught.value.hint.startswith("Move the line to the top of the file")
    assert f".{name} = … ." in caught.value.hint


@pytest.mark.parametrize(
    "text",
    [
        "images = {python = 'p:1'}",
        "images.python = 'p:1'",
        "images.'python' = 'p:1'",
    ],
)
def test_a_framework_with_the_name_of_a_setting_is_written_in_one_line(
    tmp_path: Path, text: str
) -> None:
    assert read(tmp_path, text).images == {"python": "p:1"}
