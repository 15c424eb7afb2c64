"""What %builder=s2i lets a pod build is what the program s2i makes of the same source.

Instruction by instruction and file by file; what is wanted otherwise is listed here.
"""

from __future__ import annotations

import json
import secrets
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cluster.cluster import Cluster
from tests.e2e.images.s2i_program import Both, Builder, Instruction, Made

second = pytest.mark.second("builders")

WANTED = {
    "digest": "A tag may name another image tomorrow, and what is built is named by its parts.",
    "location": "A folder of this machine means nothing to others, and changes nothing.",
    "owner": "COPY sets the owner itself: a layer less, and the image needs no chown.",
    "group": "The executor gives a user whom nobody knows a group of his own; docker gives 0.",
    "exec": "Without a shell before it, the program gets the signals that end it.",
    "labels": "The program heeds two labels only where it has a daemon: here, flags tell them.",
    "name": "The result's name is the digest of all this, so it cannot be a part of it.",
    "artifacts": "What an earlier build left must not change a result that is named by its parts.",
    "emptied": "Of a file that is ignored the program may leave an empty one, also as a script.",
    "empty": "A context without files has no folder to copy.",
}
"""All that is other than the program's, and why."""
ALWAYS = {"digest", "location", "owner", "group", "exec"}
TOLD = {"--assemble-user", "--destination"}
S2I = "io.openshift.s2i"


def as_wanted(made: Made, builder: Builder) -> tuple[Made, set[str]]:
    """What the program made, changed to what is wanted, and the names of the changes."""
    lines, seen, found = made.dockerfile, set[str](), list[Instruction]()
    if ("FROM", "result:1 as cached") in lines:
        seen.add("artifacts")
        lines = lines[lines.index(("FROM", builder.name)) :]
    owner = next(str(rest).split()[2] for _, rest in lines if str(rest).startswith("chown -R "))
    user = owner.partition(":")[0]
    for word, rest in lines:
        text, added = str(rest), [(word, rest)]
        if word == "FROM":
            assert text == builder.name
            added, change = [(word, builder.pinned)], "digest"
        elif isinstance(rest, dict) and word == "LABEL":
            change = "location"
            seen |= {"name"} if rest.pop("io.k8s.display-name", "") else set()
            rest.pop(f"{S2I}.destination", "")  # "labels"
            rest[f"{S2I}.build.source-location"] = "cell"
        elif text.startswith("chown -R "):
            added, change = [], "owner"
        elif "/tmp/artifacts.tar" in text:
            added, change = [], "artifacts"
        elif word == "COPY":
            added, change = [(word, f"--chown={owner} {text}")], "owner"
        elif (word, rest) == ("USER", "root") and user.isdigit():
            known = f"grep -q '^[^:]*:[^:]*:{user}:' /etc/passwd"
            added.append(("RUN", f"{known} || echo 's2i:x:{user}:0::/:/bin/sh' >> /etc/passwd"))
            change = "group"
        elif word == "CMD":
            added, change = [(word, json.dumps([text]))], "exec"
        else:
            change = ""
        found += added
        seen |= {change} - {""}
    files = dict(made.files)
    if files.get(own := "upload/src/.s2iignore") == (b"", False):
        seen.add("emptied")
        del files[own]
    if not any(path.startswith("upload/src/") for path in files):
        seen.add("empty")
        files["upload/src/.s2ikeep"] = (b"", False)
    return Made(found, files), seen


@pytest.fixture
def both(local_cluster: Cluster, with_s2i: None, tmp_path: Path) -> Both:
    (tmp_path / "source").mkdir()
    return Both(local_cluster, tmp_path, tmp_path / "source")


def write(both: Both, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = both.source / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())
        if text.startswith("#!"):
            path.chmod(0o755)


def same(
    both: Both,
    builder: Builder,
    *flags: str,
    others: set[str] = ALWAYS,
    words: tuple[str, ...] = (".",),
) -> Made:
    """Check that both make the same but for the differences of these names."""
    wanted, seen = as_wanted(both.theirs(builder.name, *flags), builder)
    ours = both.ours(builder.name, words)
    seen |= {"labels"} if TOLD & {flag.partition("=")[0] for flag in flags} else set()
    assert seen == others
    assert seen <= set(WANTED)
    assert ours.dockerfile == wanted.dockerfile
    if "emptied" in seen:
        del ours.files["upload/src/.s2iignore"]
    assert ours.files == wanted.files
    return ours


@pytest.fixture
def builder(local_cluster: Cluster) -> Builder:
    return Both(local_cluster, Path(), Path()).builder(named("builder"))


def named(name: str) -> str:
    """A name in the registry that no other test has."""
    return f"tests/{secrets.token_hex(4)}/{name}:1"


SCRIPT = "#!/bin/sh\nexit 0\n"
PLAIN = {
    "requirements.txt": "numpy==2.3\n",
    "a b.txt": "a blank\r\n",
    "ü/日本.csv": "1;2\n",
    "$HOME/'quoted\".txt": "",
    "[ab]*.txt": "no pattern\n",
    "tools/check": SCRIPT,
    "back\\slash": "",
}
SOURCES = {
    "names": PLAIN,
    "environment": {
        ".s2i/environment": "# a comment\nA=very \"fast\" $HOME \\ 'x'\n B = 1=2 \nF=\n"
        "nothing\n=x\na.dotted-name=ü\r\nTAB=\ta\tb\t\nA=again\nLAST=\\",
    },
    "own scripts": {
        ".s2i/bin/assemble": SCRIPT,
        ".s2i/bin/run": "echo no first line\n",
        ".s2i/bin/save-artifacts": SCRIPT,
        ".s2i/bin/usage": SCRIPT,
        ".s2i/bin/lib/common.sh": "a=1\n",
        "app.py": "print(1)\n",
    },
    "one script": {".s2i/bin/run": SCRIPT, "app.py": "print(1)\n"},
    "ignored": {
        ".s2iignore": "# a comment\n*.log\n!kept.log\n  data/*  \n!data/kept.csv\n/top\nsub\n"
        "!sub/kept.txt\n[xy]?.txt\nnot/there\nde?p/*/c\n!nothing\n",
        "a.log": "", "kept.log": "", "below/a.log": "", "data/a.csv": "", "data/kept.csv": "",
        "top": "", "below/top": "", "sub/kept.txt": "", "x1.txt": "", "z1.txt": "",
        "deep/b/c": "", "deep/c": "", "deep/b/d": "",
    },
}  # fmt: skip


FIRST = {"names": [pytest.mark.stands_for("builders")]}


@pytest.mark.parametrize(
    "source", [pytest.param(name, marks=FIRST.get(name, [second])) for name in SOURCES]
)
def test_sources(both: Both, builder: Builder, source: str) -> None:
    write(both, SOURCES[source])
    same(both, builder)


@second
def test_all_but_one_file_is_ignored(both: Both, builder: Builder) -> None:
    write(both, {".s2i/environment": "A=1\n", ".s2i/bin/assemble": SCRIPT, "data/a.csv": ""})
    write(both, {".s2iignore": "*\n!app.py\n", "app.py": ""})
    same(both, builder, others=ALWAYS | {"emptied"})


@second
def test_a_script_that_is_ignored_is_not_there(both: Both, builder: Builder) -> None:
    write(both, {".s2i/environment": "A=1\n", ".s2i/bin/run": SCRIPT, "app.py": ""})
    write(both, {".s2iignore": ".s2i/bin/run\n.s2i/environment\n"})
    theirs, ours = both.theirs(builder.name), both.ours(builder.name)
    assert theirs.files["upload/scripts/run"] == (b"", True)  # "emptied"
    assert sorted(ours.files) == ["upload/src/.s2iignore", "upload/src/app.py"]
    assert ("CMD", '["/usr/libexec/s2i/run"]') in ours.dockerfile
    assert "ENV" not in [word for word, _ in ours.dockerfile]


@second
def test_an_empty_source(both: Both, builder: Builder) -> None:
    same(both, builder, others=ALWAYS | {"empty"}, words=())


@second
def test_links_bring_what_they_lead_to(both: Both, builder: Builder) -> None:
    write(both, {"real.txt": "text\n"})
    (both.source / "link.txt").symlink_to("real.txt")
    made = same(both, builder)
    assert made.files["upload/src/link.txt"] == (b"text\n", False)


@second
def test_packages_are_a_requirements_file(both: Both, builder: Builder) -> None:
    write(both, {"app.py": "print(1)\n", "requirements.txt": "pandas\nnumpy==2.3\n"})
    wanted, _ = as_wanted(both.theirs(builder.name), builder)
    (both.source / "requirements.txt").unlink()
    assert both.ours(builder.name, packages=("pandas", "numpy==2.3")) == wanted


@second
@pytest.mark.parametrize("kept", [True, False])
def test_what_an_earlier_build_left_is_not_used(both: Both, builder: Builder, kept: bool) -> None:
    write(both, {"app.py": "print(1)\n", **({".s2i/bin/save-artifacts": SCRIPT} if kept else {})})
    others = ALWAYS | {"artifacts", "name"}
    same(both, builder, "result:1", "--incremental", others=others)


LABELS: dict[str, tuple[dict[str, str], tuple[str, ...], set[str]]] = {
    "none": ({}, (), ALWAYS),
    "old place": ({"io.s2i.scripts-url": "image:///opt/old"}, (), ALWAYS),
    "new place wins": (
        {"io.s2i.scripts-url": "image:///opt/old", f"{S2I}.scripts-url": "image:///opt/new/"},
        (),
        ALWAYS,
    ),
    "root": (
        {f"{S2I}.assemble-user": "root"},
        ("--assemble-user=root",),
        ALWAYS - {"group"} | {"labels"},
    ),
    "number": ({f"{S2I}.assemble-user": "1234"}, ("--assemble-user=1234",), ALWAYS | {"labels"}),
    "destination": (
        {f"{S2I}.destination": "/opt/here"},
        ("--destination=/opt/here",),
        ALWAYS | {"labels"},
    ),
}


@second
@pytest.mark.parametrize("case", LABELS)
def test_labels(both: Both, case: str) -> None:
    labels, flags, others = LABELS[case]
    builder = both.builder(named("labels"), Labels=labels)
    write(both, {"app.py": "print(1)\n", ".s2i/bin/assemble": SCRIPT})
    same(both, builder, *flags, others=others)


@second
def test_triggers_of_the_builder_are_the_executors_business(both: Both) -> None:
    builder = both.builder(named("triggers"), OnBuild=["COPY . /all", "RUN true"])
    write(both, {"app.py": "print(1)\n"})
    same(both, builder)


@second
@pytest.mark.parametrize("name", ["a.b_c__d-e/f--g:V1.0_a-b.C", "untagged"])
def test_names_of_builders(both: Both, name: str) -> None:
    builder = both.builder(f"tests/{secrets.token_hex(4)}/{name}")
    write(both, {"app.py": "print(1)\n"})
    tagged = builder.name if ":" in name else f"{builder.name}:latest"
    wanted, _ = as_wanted(both.theirs(builder.name), replace(builder, name=tagged))
    assert both.ours(builder.name) == wanted


@second
def test_a_builder_by_its_digest(both: Both, builder: Builder) -> None:
    write(both, {"app.py": "print(1)\n"})
    same(both, Builder(builder.pinned, builder.pinned))
