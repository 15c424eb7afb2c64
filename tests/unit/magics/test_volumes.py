"""The values of %volume, and the errors for those that cannot be one."""

from __future__ import annotations

import pytest

from ciao_kernel.errors import DirectiveError
from ciao_kernel.magics import parse
from ciao_kernel.model import Volume, VolumeKind
from ciao_kernel.session.plugin_registry import Registry

TABLE = Registry(third_party={}).table


def read(text: str) -> tuple[Volume, ...]:
    head = "%framework=tensorflow\n%worker=1\n"
    return parse.parse(f"{head}%volume={text}\nprint()\n", TABLE).spec.volumes


@pytest.mark.parametrize(
    ("text", "volume"),
    [
        ("data:in/x", Volume(VolumeKind.CLAIM, "in/x", "data")),
        ("data/a/b/:./in/:ro", Volume(VolumeKind.CLAIM, "in", "data", "a/b", read_only=True)),
        ("data:/data", Volume(VolumeKind.CLAIM, "/data", "data")),
        ("nfs://h.example/a/b:x", Volume(VolumeKind.NFS, "x", "h.example", "/a/b")),
        ("nfs://h/:x", Volume(VolumeKind.NFS, "x", "h", "/")),
        ("host:/mnt//data/:x:ro", Volume(VolumeKind.HOST, "x", path="/mnt/data", read_only=True)),
        ("tmp:x", Volume(VolumeKind.TMP, "x")),
        ("tmp:10Gi:x", Volume(VolumeKind.TMP, "x", size="10Gi")),
        ("memory:2Gi:x", Volume(VolumeKind.MEMORY, "x", size="2Gi")),
    ],
)
def test_each_form_is_read(text: str, volume: Volume) -> None:
    assert read(text) == (volume,)


def test_words_and_lines_add_up() -> None:
    assert [one.where for one in read("a:x b:y\n%volume=c:z")] == ["x", "y", "z"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("data", "WHAT:WHERE or WHAT:WHERE:ro"),
        (":x", "WHAT:WHERE"),
        ("Data:x", "WHAT:WHERE"),
        ("hosts:/a:/b", "WHAT:WHERE"),
        ("data/:x", "WHAT:WHERE"),
        ("data:../x", "without .."),
        ("data/../x:y", "without .."),
        ("nfs://h/../x:y", "without .."),
        ("nfs://h:x", "nfs://SERVER/PATH"),
        ("host:data:x", "host:/PATH"),
        ("host:/:x", "host:/PATH"),
        ("host:/a/../b:x", "without .."),
        ("data:.", "a folder below the program's own"),
        ("data:/", "a folder other than /"),
        ("data:/ciao/x", "a folder other than /ciao/x"),
        ("data:/dev/shm", "a folder other than /dev/shm"),
        ("memory:x", "a size, such as memory:2Gi"),
        ("tmp::x", "a size, such as tmp:2Gi"),
        ("tmp:many:x", "a size in Kubernetes' notation"),
        ("tmp:x:ro", "tmp without :ro"),
        ("a:x b:x", "x is the folder of a"),
        ("a:x b:x/y", "x is the folder of a"),
    ],
)
def test_an_error_names_the_line_and_what_was_expected(text: str, expected: str) -> None:
    with pytest.raises(DirectiveError) as error:
        read(text)
    assert error.value.line == 3
    assert expected in error.value.message
    assert text in error.value.message


def test_two_lines_cannot_have_one_folder() -> None:
    with pytest.raises(DirectiveError, match="x is the folder of a") as error:
        read("a:x\n%volume=b:x")
    assert error.value.line == 4


def test_a_volume_hides_files_below_it_and_needs_folders_above_it() -> None:
    volume = Volume(VolumeKind.TMP, "data/train")
    assert volume.hides(["main.py", "data/train/x.csv"]) == "data/train/x.csv"
    assert volume.hides(["data"]) == "data"
    assert volume.hides(["data/trainer.py", "data/x.csv"]) is None
