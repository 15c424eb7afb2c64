"""What a build is made from, and what stays at home."""

from __future__ import annotations

import base64
import os
import tarfile
from io import BytesIO
from pathlib import Path

import pytest

from ciao_kernel.builders import context, packed_context
from ciao_kernel.delivery.input import ignore_files
from ciao_kernel.errors import SourceError
from ciao_kernel.oci.layer import File
from tests.helpers.rights import as_nobody

NOTHING = ignore_files.docker("")


def paths(found: tuple[File, ...]) -> list[str]:
    return [one.path for one in found]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("a.py", "sub/b.py", "sub/deep/c.log", "c.log", "sub/__pycache__/x.pyc"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    return tmp_path


def gather(folder: Path, *patterns: str, ignored: str = "") -> list[str]:
    wishes = [(pattern, "Dockerfile, line 2") for pattern in patterns]
    return paths(context.gather(folder, wishes, ignore_files.docker(ignored)))


def test_files_folders_and_patterns(folder: Path) -> None:
    assert gather(folder, "a.py", "sub") == ["a.py", "sub/b.py", "sub/deep/c.log"]
    assert gather(folder, "*.log") == ["c.log"]
    assert gather(folder, ".") == ["a.py", "c.log", "sub/b.py", "sub/deep/c.log"]
    assert gather(folder, "./sub/") == ["sub/b.py", "sub/deep/c.log"]


@pytest.mark.parametrize(
    ("text", "stays"),
    [
        ("*.log", ["c.log"]),
        ("**/*.log", ["c.log", "sub/deep/c.log"]),
        ("sub", ["sub/b.py", "sub/deep/c.log"]),
        ("sub\n!sub/deep", ["sub/b.py"]),
        ("/a.py\n# *.log\n\n  c.?og ", ["a.py", "c.log"]),
        ("*/*.py", ["sub/b.py"]),
        ("[a-b].py", ["a.py"]),
        ("[^a].log", ["c.log"]),
        ("**", ["a.py", "c.log", "sub/b.py", "sub/deep/c.log"]),
        ("sub/**/c.log", ["sub/deep/c.log"]),
        ("\\*.log", []),
    ],
)
def test_dockerignore(folder: Path, text: str, stays: list[str]) -> None:
    every = gather(folder, ".")
    assert gather(folder, ".", ignored=text) == [name for name in every if name not in stays]


@pytest.mark.parametrize(
    ("text", "path", "stays"),
    [
        ("*.log", "a.log", True),
        ("*.log", "sub/a.log", False),
        ("sub/*.log", "sub/a.log", True),
        ("sub", "sub/x/y", True),
        ("*.log\n!keep.log", "keep.log", False),
        ("sub/*\n!sub/keep", "sub/keep", False),
        ("sub\n!sub/keep", "sub/keep", True),
        ("# x\n*", ".s2iignore", False),
        ("**/x", "a/b/x", False),
    ],
)
def test_s2iignore_knows_whole_paths_alone(text: str, path: str, stays: bool) -> None:
    assert ignore_files.s2i(text)(path) is stays


def test_what_is_not_there_or_outside(folder: Path) -> None:
    with pytest.raises(SourceError, match=r"Dockerfile, line 2: there is no gone\.py"):
        gather(folder, "gone.py")
    with pytest.raises(SourceError, match="outside"):
        gather(folder, "../x")
    with pytest.raises(SourceError, match="outside"):
        context.read(folder, "/etc/passwd", "%dockerfile")
    with pytest.raises(SourceError, match="sub cannot be read"):
        context.read(folder, "sub", "%condaEnv")


@pytest.mark.parametrize("name", [".netrc", ".env", "id_rsa", "sub/tls.key", ".pypirc"])
def test_secrets_are_refused_unless_a_line_says_that_they_are_meant(
    folder: Path, name: str
) -> None:
    (folder / name).write_text("hunter2")
    for wish in (".", name):
        with pytest.raises(
            SourceError, match=r"line 2: .* cannot be taken: files like this"
        ) as refused:
            gather(folder, wish)
        assert f"a line !{name} there includes it" in refused.value.hint
        assert "hunter2" not in refused.value.message + refused.value.hint
    assert name not in gather(folder, ".", ignored=name)
    assert name in gather(folder, ".", ignored=f"!{name}")
    assert name in gather(folder, ".", ignored=f"*\n!sub\n!{name}")
    assert name not in gather(folder, ".", ignored=f"!{name}\n**/{Path(name).name}")
    # A wide line is no word on this file.
    with pytest.raises(SourceError, match="cannot be taken"):
        gather(folder, ".", ignored=f"*\n!{'sub' if '/' in name else name[:-1] + '*'}")


def test_loops_pipes_and_dangling_links(folder: Path) -> None:
    (folder / "sub" / "loop").symlink_to(folder)
    assert gather(folder, "sub") == ["sub/b.py", "sub/deep/c.log"]
    said: list[str] = []
    context.gather(folder, [("sub", "x")], NOTHING, said.append)
    assert said == ["links to folders are not followed: sub/loop"]
    context.gather(folder, [("sub", "x")], ignore_files.docker("sub/loop"), said.append)
    assert len(said) == 1
    os.mkfifo(folder / "pipe")
    with pytest.raises(SourceError, match="pipe cannot be taken: it is neither a file nor a fold"):
        gather(folder, ".")
    with pytest.raises(SourceError, match="pipe cannot be read: it is neither a file nor a"):
        context.read(folder, "pipe", "%condaEnv")
    (folder / "pipe").unlink()
    (folder / "dangling").symlink_to(folder / "nowhere")
    with pytest.raises(SourceError, match="dangling cannot be taken: it is a broken link"):
        gather(folder, ".")


def test_links_out_of_the_folder(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "Dockerfile").write_text("FROM hunter2")
    (folder / "sub" / "link").symlink_to(elsewhere / "Dockerfile")
    for wish in (".", "sub", "sub/link", "sub/*"):
        with pytest.raises(SourceError) as refused:
            gather(folder, wish)
        assert refused.value.message == (
            f"Dockerfile, line 2: sub/link cannot be taken: it leads to {elsewhere}/Dockerfile, "
            f"outside of {folder}."
        )
        assert "a line !sub/link there includes a file anyway" in refused.value.hint
    assert gather(folder, "sub/link", ignored="!sub/link") == ["sub/link"]
    assert "sub/link" not in gather(folder, ".", ignored="sub/link")
    with pytest.raises(SourceError, match=r"sub/link, which leads to .*, outside the folder of"):
        context.read(folder, "sub/link", "%dockerfile")
    (folder / "tree").symlink_to(elsewhere)
    with pytest.raises(SourceError, match="tree cannot be taken: it leads to"):
        gather(folder, "tree")
    (folder / "tree").unlink()
    (folder / "sub" / "link").unlink()
    taken = context.gather(folder, [("a.py", "x")], NOTHING)
    (folder / "a.py").unlink()
    (folder / "a.py").symlink_to(elsewhere / "Dockerfile")
    with pytest.raises(SourceError, match="it was replaced after it was checked"):
        packed_context.digest(taken, lambda: None)
    with pytest.raises(SourceError, match="it was replaced after it was checked"):
        packed_context.pack_context(taken, folder, lambda: None)


def test_names_and_folders_that_cannot_be_read(readable: Path) -> None:
    odd = readable / os.fsdecode(b"\xff.csv")
    odd.touch()
    with pytest.raises(SourceError, match=r"\\xff\.csv cannot be taken: its name is not UTF-8"):
        gather(readable, ".")
    odd.unlink()
    (readable / "closed").mkdir(mode=0)
    with as_nobody(), pytest.raises(SourceError, match="closed cannot be taken: Permission denied"):
        gather(readable, ".")


def test_empty_folders_are_taken(folder: Path, tmp_path: Path) -> None:
    (folder / "sub" / "none" / "deep").mkdir(parents=True)
    assert gather(folder, "sub") == ["sub/b.py", "sub/deep/c.log", "sub/none/deep/"]
    assert gather(folder, "sub/none", ignored="sub/none") == []
    files = context.gather(folder, [("sub/none", "x")], NOTHING)
    for prefix, some in ("", files), ("ciao-context/", packed_context.in_image(files)):
        made = packed_context.pack_context(some, tmp_path, lambda: None)
        assert isinstance(made.content, bytes)
        with tarfile.open(fileobj=BytesIO(made.content)) as tar:
            assert tar.getmember(f"{prefix}sub/none/deep").isdir()


def test_texts_that_are_too_large_are_not_cut(folder: Path) -> None:
    (folder / "big").write_text("#" * (1 << 20))
    assert len(context.read(folder, "big", "%dockerfile")) == 1 << 20
    (folder / "big").write_text("#" * ((1 << 20) + 1))
    with pytest.raises(SourceError, match="big cannot be read: it is larger than a megabyte"):
        context.read(folder, "big", "%dockerfile")


def test_files_are_known_without_being_packed(folder: Path) -> None:
    def key(files: tuple[File, ...]) -> str:
        return packed_context.digest(files, lambda: None)

    files = context.gather(folder, [(".", "x")], NOTHING)
    first = key(files)
    assert key(files[::-1]) == first
    assert key((*files, File("empty/", b""))) != first
    (folder / "a.py").chmod(0o755)
    other = key(context.gather(folder, [(".", "x")], NOTHING))
    (folder / "a.py").write_text("b")
    assert len({first, other, key(files)}) == 3
    (folder / "a.py").unlink()
    with pytest.raises(SourceError, match=r"a\.py cannot be read: No such file"):
        key(files)


def test_the_same_files_are_the_same_bytes(folder: Path, tmp_path: Path) -> None:
    def pack() -> bytes:
        files = context.gather(folder, [(".", "x")], NOTHING)
        made = packed_context.pack_context(files, tmp_path, lambda: None)
        assert isinstance(made.content, bytes)
        return made.content

    first = pack()
    os.utime(folder / "a.py", (1, 1))
    assert pack() == first
    (folder / "a.py").chmod(0o755)
    assert pack() != first


def test_a_config_map_holds_it(folder: Path, tmp_path: Path) -> None:
    layer = packed_context.pack_context([File("Dockerfile", b"FROM a\n")], tmp_path, lambda: None)
    made = packed_context.config_map("x", layer, b"authority")
    assert made["immutable"] is True
    assert base64.b64decode(made["binaryData"]["context.tar.gz"]) == layer.content
    assert base64.b64decode(made["binaryData"]["ca.crt"]) == b"authority"
