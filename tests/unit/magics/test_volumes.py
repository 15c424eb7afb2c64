"""The values of %volume, and the errors for those that cannot be one."""

from __future__ import annotations

import pytest

from ciao_kernel.errors import DirectiveError
from ciao_kernel.magics import parse
from ciao_kernel.magics.directives.stored_volumes import volumes_in
from ciao_kernel.magics.render import render
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
        ("host:/mnt/a,b:x", Volume(VolumeKind.HOST, "x", path="/mnt/a,b")),
        ("nfs://h/a,b:x", Volume(VolumeKind.NFS, "x", "h", "/a,b")),
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
        ("nfs://h/x", "expected WHAT:WHERE or WHAT:WHERE:ro"),
        ("nfs://h/x:ro", "expected WHAT:WHERE or WHAT:WHERE:ro"),
        ("tmp:data, tmp:logs", "separated by spaces"),
        ("data:/data,ro", "separated by spaces"),
        ("data:/data,logs:/logs", "separated by spaces"),
        ("tmp:a,tmp:b", "separated by spaces"),
        ("host:/a:x,host:/b:y", "separated by spaces"),
        ("nfs://h/a:x,data:y", "separated by spaces"),
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


def roles(text: str) -> dict[str, list[str]]:
    """The volumes of each role's replicas."""
    spec = parse.parse(f"%framework=tensorflow\n{text}\nprint()\n", TABLE).spec
    found = {one.role: [str(volume) for volume in spec.volumes_of(one.role)] for one in spec.groups}
    assert set(spec.all_volumes) == {
        one for group in spec.groups for one in spec.volumes_of(group.role)
    }
    return found


@pytest.mark.parametrize(
    ("text", "ps", "worker"),
    [
        ("%ps=1\n%worker=2;%volume=a:x", [], ["a:x"]),
        ("%ps=1;%worker=2;%memory=1Gi;%volume=a:x;%volume=b:y", [], ["a:x", "b:y"]),
        ("%ps=1;%volume=a:x\n%volume=c:z\n%worker=2;%volume=b:x", ["c:z", "a:x"], ["c:z", "b:x"]),
        ("%ps=1\n%volume=a:x;%worker=2", ["a:x"], ["a:x"]),
        ("%volume=a:x\n%ps=1\n%worker=2", ["a:x"], ["a:x"]),
    ],
)
def test_behind_a_role_a_volume_is_for_its_replicas(
    text: str, ps: list[str], worker: list[str]
) -> None:
    assert roles(text) == {"ps": ps, "worker": worker}


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("%worker=1;%volume=a:x b:x/y", 2),
        ("%worker=1;%volume=a:x\n%volume=b:x", 3),
        ("%volume=a:x/y\n%worker=1;%volume=b:x", 3),
    ],
)
def test_no_replica_has_two_volumes_in_one_folder(text: str, line: int) -> None:
    with pytest.raises(DirectiveError, match="expected a folder of its own") as error:
        roles(text)
    assert error.value.line == line
    if text.count("%volume") == 2:
        assert error.value.hint == "Name another folder."


def test_the_volumes_that_every_replica_has() -> None:
    text = "%framework=tensorflow\n%ps=1;%volume=a:x c:z\n%volume=b:y\n%worker=2;%volume=c:z\n"
    spec = parse.parse(f"{text}print()\n", TABLE).spec
    assert [str(one) for one in spec.all_volumes] == ["b:y", "a:x", "c:z"]
    assert [str(one) for one in spec.shared_volumes] == ["b:y", "c:z"]
    seen = spec.seen_by("worker")
    assert [str(one) for one in seen.volumes] == ["b:y", "c:z"]
    assert seen.all_volumes == seen.volumes_of("worker") == seen.volumes


def test_the_volumes_in_a_stored_header() -> None:
    text = (
        "%framework=tensorflow\n%ps=1;%volume='a/it s:x'\n%volume=b:y\n%args='%volume=n:n' --a\n"
        "%worker=2;%cpu=1;%volume=c:z:ro\n"
    )
    header = render(parse.parse(f"{text}print()\n", TABLE).spec, TABLE)
    assert [str(one) for one in volumes_in(header)] == ["a/it s:x", "c:z:ro", "b:y"]
    assert [str(one) for one in volumes_in(header, "worker")] == ["c:z:ro", "b:y"]
    assert [str(one) for one in volumes_in(header, "chief")] == ["b:y"]
    assert volumes_in("%framework=tensorflow\n%volume=of another version\n") == ()
