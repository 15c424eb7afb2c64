"""What pip is asked for: files of requirements are read whole, and say nothing of this machine."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ciao_kernel.delivery.packages.requirements import Requirements, read
from ciao_kernel.errors import SourceError
from ciao_kernel.magics.table import Table
from ciao_kernel.model import BuildSpec
from ciao_kernel.redaction import mask
from ciao_kernel.session.plugin_registry import Registry
from tests.helpers.packages import wheel


@pytest.fixture
def table() -> Table:
    return Registry({}).table


def of_file(folder: Path, text: str | bytes, **more: str) -> Requirements:
    raw = text if isinstance(text, bytes) else text.encode()
    (folder / "requirements.txt").write_bytes(raw)
    return read(BuildSpec(requirements="requirements.txt", **more), folder)


def test_packages_and_files_are_one_list(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "more.txt").write_text("-r ../requirements.txt\n-c held.txt\nlib\n")
    (tmp_path / "deep" / "held.txt").write_text("lib<2\n")
    (tmp_path / "requirements.txt").write_bytes(
        b"\xef\xbb\xbf# what we need\r\napp[extra] >= 1 ; python_version > '3'  # why\r\n"
        b"--requirement=deep/more.txt\n--pre\nother == \\\n  2\nx @ https://example.com/x.whl#sha256=1\n"
    )

    found = read(BuildSpec(packages=("numpy",), requirements="requirements.txt"), tmp_path)

    assert found.packages == (
        "numpy",
        "app[extra] >= 1 ; python_version > '3'",
        "lib",
        "other ==   2",
        "x @ https://example.com/x.whl#sha256=1",
    )
    assert found.options == ("--pre",)
    assert found.constraints == ("lib<2",)
    assert found.label == "numpy requirements.txt"
    arguments = found.arguments(tmp_path)
    assert [Path(one).read_text() for one in arguments[1::2]] == [
        "".join(f"{line}\n" for line in found.lines),
        "lib<2\n",
    ]


def test_the_text_of_files_is_part_of_the_key(tmp_path: Path) -> None:
    first = of_file(tmp_path, "a\n")

    assert of_file(tmp_path, "# said otherwise\na\n").key == first.key
    assert of_file(tmp_path, "b\n").key != first.key
    assert of_file(tmp_path, "a\n", pip_index="https://example.com").key != first.key


def test_an_index_that_the_cell_names_is_the_one(tmp_path: Path) -> None:
    text = "-i https://other.example.com\n--index-url=https://x.example.com\na\n"

    assert of_file(tmp_path, text).options
    assert not of_file(tmp_path, text, pip_index="https://example.com").options


def test_wheels_in_a_folder_are_found_from_the_file_on(tmp_path: Path) -> None:
    assert of_file(tmp_path, "-f wheels\na").options == (f"--find-links {tmp_path / 'wheels'}",)


def test_places_may_have_spaces(tmp_path: Path) -> None:
    folder = tmp_path / "my project"
    (folder / "my wheels").mkdir(parents=True)
    (folder / "my reqs.txt").write_text("lib\n")

    found = of_file(folder, "-r \"my reqs.txt\"\n-c my\\ reqs.txt\n-f 'my wheels' --pre\n")

    assert (found.packages, found.constraints) == (("lib",), ("lib",))
    assert found.options == (f"--find-links '{folder / 'my wheels'}' --pre",)


@pytest.mark.parametrize("option", ["-f", "-r"])
def test_a_quote_without_an_end_is_told(tmp_path: Path, option: str) -> None:
    with pytest.raises(SourceError, match=r"requirements\.txt, line 2: a quote is not closed"):
        of_file(tmp_path, f"a\n{option} it's\n")


def test_pip_finds_wheels_in_a_folder_with_spaces(tmp_path: Path) -> None:
    folder = tmp_path / "my project"
    (folder / "my wheels").mkdir(parents=True)
    name, raw = wheel("mylib", "0.1", "")
    (folder / "my wheels" / name).write_bytes(raw)
    wanted = of_file(folder, '-f "my wheels"\nmylib\n')
    command = [sys.executable, "-m", "pip", "--isolated", "install", "--dry-run", "--no-index"]

    said = subprocess.check_output([*command, *wanted.arguments(tmp_path)], text=True)

    assert "Would install mylib-0.1" in said


@pytest.mark.parametrize("text", ["", "# nothing\n\n"])
def test_a_file_without_packages_asks_for_none(tmp_path: Path, text: str) -> None:
    assert not of_file(tmp_path, text).packages


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"\x00\x01\x02", "requirements.txt cannot be read: it is not text"),
        (b"\xff\xfe", "requirements.txt cannot be read: it is not text"),
        (b"#" * (1 << 21), "larger than a megabyte"),
        ("a\n-e .\n", "requirements.txt, line 2: . is a local path"),
        ("./lib\n", "line 1 is a local path"),
        ("lib @ file:///srv/lib.whl\n", "is a local path"),
        ("lib-1.0-py3-none-any.whl", "is a local path"),
        ("-r https://example.com/x.txt", "only from this machine"),
        ("-r gone.txt", "gone.txt cannot be read: No such file"),
        ("lib @ lib-1.0-py3-none-any.whl", "is a local path"),
        ("lib-1.0-py3-none-any.whl ; python_version > '3'", "is a local path"),
        ("lib-1.0-py3-none-any.whl --hash=sha256:0", "is a local path"),
        ("two words", "line 1 does not name a package: expected"),
        ("== 2", "line 1 does not name a package: expected package name"),
        ("lib=2", "line 1 does not name a package: expected"),
        ("lib==2.x!", "'lib==2.x!' is not a package: expected"),
        ("lib; " + "(" * 5000, "does not name a package: too many parentheses."),
        ("lib; pyton_version > '3'", "does not name a package: expected a marker variable"),
        ("lib --hash=sha256:0\nlib= --hash=sha256:0", "line 2 does not name"),
    ],
)
def test_bad_files(tmp_path: Path, text: str | bytes, says: str) -> None:
    with pytest.raises(SourceError) as raised:
        of_file(tmp_path, text)
    assert says in raised.value.message
    assert raised.value.hint


def test_the_reason_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(SourceError) as raised:
        of_file(tmp_path, "lib==2.x!\n")
    assert "\n" not in raised.value.message
    assert raised.value.message.endswith(".")
    assert not raised.value.message.endswith("..")


@pytest.mark.parametrize(
    "line",
    [
        "https://example.com/lib-1.0-py3-none-any.whl",
        "https://example.com/lib-1.0-py3-none-any.whl ; python_version > '3'",
        "https://example.com/lib-1.0-py3-none-any.whl --hash=sha256:0",
        "git+https://example.com/lib.git@main#egg=lib",
        "lib@https://example.com/lib-1.0-py3-none-any.whl",
        "lib[extra]>=1,<2; python_version > '3' and extra == 'x'",
        "lib (>=1)",
        "lib===odd",
        "lib==1.0 --hash=sha256:0 --hash=sha256:1",
        "lib==${LIB_VERSION}",
        "lib ${PIN}",
        "${ALL_OF_IT}",
    ],
)
def test_what_pip_accepts_beside_names_and_versions(tmp_path: Path, line: str) -> None:
    assert of_file(tmp_path, f"{line}\n").packages == (line,)


def test_options_of_a_constraints_file_count_everywhere(tmp_path: Path) -> None:
    """pip honours them; an index of the file gives way to that of the cell."""
    (tmp_path / "held.txt").write_text("--extra-index-url https://a.b/x\n-i https://c.d\nlib<2\n")
    found = of_file(tmp_path, "lib\n-c held.txt\n")
    assert found.options == ("--extra-index-url https://a.b/x", "-i https://c.d")
    assert found.constraints == ("lib<2",)
    spec = BuildSpec(requirements="requirements.txt", pip_index="https://own")
    assert read(spec, tmp_path).options == ("--extra-index-url https://a.b/x",)


def test_pip_checks_the_hashes_of_a_file(tmp_path: Path) -> None:
    name, raw = wheel("mylib", "0.1", "")
    (tmp_path / name).write_bytes(raw)
    digest = hashlib.sha256(raw).hexdigest()
    command = [sys.executable, "-m", "pip", "--isolated", "install", "--dry-run", "--no-index"]
    text = f"-f .\nmylib==0.1 \\\n    --hash=sha256:{'0' * 64} \\\n    --hash=sha256:"

    wanted = of_file(tmp_path, f"{text}{digest}  # both\n")
    said = subprocess.check_output([*command, *wanted.arguments(tmp_path)], text=True)
    assert "Would install mylib-0.1" in said

    wanted = of_file(tmp_path, f"{text}{'1' * 64}\n")
    done = subprocess.run([*command, *wanted.arguments(tmp_path)], capture_output=True, text=True)
    assert "DO NOT MATCH THE HASHES" in done.stderr


def test_the_place_of_a_package(tmp_path: Path) -> None:
    found = of_file(
        tmp_path,
        "My_Lib[x]>=1 --hash=sha256:0\npinned==${V}\ngit+https://me:hunter2@a.b/repo\n"
        "git @ https://a.b/git.whl\n",
    )

    assert found.place("my.lib>1") == "requirements.txt, line 1"
    assert found.place("pinned==2.0") == "requirements.txt, line 2"
    assert found.place("git+https://…@a.b/repo") == "requirements.txt, line 3"
    assert found.place("git") == "requirements.txt, line 4"
    assert found.place("other") == found.place("") == found.place("git+https://a.b/x") == ""


def test_what_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for name, why in (("pipe", "but a pipe"), ("folder", "Is a directory")):
        with pytest.raises(SourceError, match=f"{name} cannot be read: .*{why}"):
            read(BuildSpec(requirements=name), tmp_path)


def test_a_file_may_hold_and_ask_for_the_same(tmp_path: Path) -> None:
    (tmp_path / "v.txt").write_text("lib<2\n-c v.txt\n-r v.txt\n")
    found = of_file(tmp_path, "-c v.txt\n-r v.txt\n-r requirements.txt\n")
    assert (found.packages, found.constraints) == (("lib<2",), ("lib<2",))


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("-e git+https://me:hunter2@a.b/repo.git@main#egg=repo", "git+https://…@a.b/repo.git@main"),
        ("-e git+https://hunter2@a.b/repo.git", "git+https://…@a.b/repo.git is editable"),
        ("--editable=https://a.b/t/hunter2/team/x.zip", "https://a.b/t/…/team/x.zip is editable"),
        ("-e git+file://me:hunter2@a.b/repo", "git+file://…@a.b/repo is a local path"),
        ("-e me:hunter2@a.b/repo", "line 1: …@a.b/repo is a local path"),
        ("foo @ file://me:hunter2@a.b/x", "line 1 is a local path"),
        ("me:hunter2@a.b/x.whl", "line 1 is a local path"),
        ("me:hunt@er2@a.b/x", "line 1 does not name a package"),
        ("-r me:hunter2@a.b/x.txt", "…@a.b/x.txt cannot be read"),
    ],
)
def test_no_message_has_a_password(tmp_path: Path, line: str, says: str) -> None:
    with pytest.raises(SourceError) as raised:
        of_file(tmp_path, f"{line}\n")
    assert says in raised.value.message
    assert "hunt" not in raised.value.message + raised.value.hint


@pytest.mark.parametrize(
    "text",
    [
        "root:x:0:0:hunter2:/root:/bin/bash\n",
        "/bin/hunter2\n",
        "TOKEN=hunter2\n",
        "TOKEN: hunter2\n",
        "lib\nthe password is hunter2\n",
        "lib\nhunter2==\n",
        "lib\npassword hunter2>=ada\n",
        "lib @ hunter2 word\n",
        "- lib=hunter2\n",
        "-----BEGIN OF hunter2-----\n",
        "KEY = 'hunter2\n",
        "\u202ehunter2\n",
    ],
)
def test_the_lines_of_another_file_are_not_quoted(tmp_path: Path, text: str) -> None:
    with pytest.raises(SourceError) as raised:
        of_file(tmp_path, text)
    assert "requirements.txt, line " in raised.value.message
    assert "hunter2" not in raised.value.message + raised.value.hint


@pytest.mark.parametrize("name", [".env", ".netrc", "key.txt"])
def test_a_file_with_a_password_is_no_requirements_file(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("-----BEGIN PRIVATE KEY-----\nhunter2\n")
    with pytest.raises(SourceError, match=f"{name} cannot be read: .* (hold|holds) ") as raised:
        read(BuildSpec(requirements=name), tmp_path)
    assert "hunter2" not in raised.value.message + raised.value.hint


def test_a_file_outside_of_the_folder_is_not_read(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    (tmp_path / "other.txt").write_text("hunter2\n")
    (work / "link.txt").symlink_to("../other.txt")
    with pytest.raises(SourceError, match=r"link\.txt leads to .*other\.txt, outside of"):
        read(BuildSpec(requirements="link.txt"), work)
    for line in ("-r ../other.txt", "-c link.txt", f"-r {tmp_path}/other.txt", "-r /etc/passwd"):
        with pytest.raises(SourceError, match=r"leads to .*, outside of"):
            of_file(work, f"{line}\n")
    (tmp_path / ".git").mkdir()  # a repository
    assert of_file(work, "-r ../other.txt\n").packages == ("hunter2",)


def test_a_long_line_is_cut_in_a_message(tmp_path: Path) -> None:
    with pytest.raises(SourceError) as raised:
        of_file(tmp_path, f"lib==1 {'x' * 5000}\n")
    assert len(raised.value.message) < 300


def test_how_to_name_what_is_editable_elsewhere(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="is editable") as raised:
        of_file(tmp_path, "lib\n-e git+https://a.b/repo.git@main#egg=repo\n")
    assert "is a local path" not in raised.value.message
    assert "`repo @ git+https://…`" in raised.value.hint


@pytest.mark.parametrize("name", ["/etc/hostname", "../requirements.txt", "~/requirements.txt"])
def test_the_file_is_beside_the_notebook(tmp_path: Path, name: str) -> None:
    (tmp_path / "requirements.txt").write_text("lib\n")
    (tmp_path / "work").mkdir()
    with pytest.raises(SourceError, match="outside the folder of your code"):
        read(BuildSpec(requirements=name), tmp_path / "work")


def test_lines_with_a_user_or_a_password_are_known(tmp_path: Path) -> None:
    (tmp_path / "held.txt").write_text("a @ git+ssh://git@example.com/a\n")
    found = of_file(
        tmp_path,
        "--extra-index-url https://jane:hunter2@example.com/simple\nlib\n"
        "b @ https://jane:hun@ter2@example.com/b.whl\n-c held.txt\nc @ git+https://example.com/c@v1\n",
    )
    assert found.with_credentials == (
        "requirements.txt, line 1", "requirements.txt, line 3", "held.txt, line 1"
    )  # fmt: skip
    assert mask("x https://jane:hun@ter2@a.b/c@1") == "x https://…@a.b/c@1"


def test_a_token_in_an_address_is_as_a_password(tmp_path: Path) -> None:
    line = "--index-url https://pypi.anaconda.org/t/ab-hunter2/team/simple"
    found = of_file(tmp_path, f"{line}\nlib\n")

    assert found.with_credentials == ("requirements.txt, line 1",)
    assert mask(line) == "--index-url https://pypi.anaconda.org/t/…/team/simple"
    assert not of_file(tmp_path, "-i https://pypi.example.com/t/simple\nlib\n").with_credentials


def test_a_comment_is_never_continued(tmp_path: Path) -> None:
    text = "# wheels come from C:\\wheels\\\nbase\n  # so \\\ndep\nlib \\\n# end \\\nlast\n"
    assert of_file(tmp_path, text).packages == ("base", "dep", "lib", "last")


@pytest.mark.parametrize(
    ("word", "says"),
    [
        ("--pre", "--pre is an option of pip"),
        (">=2", "is not a package"),
        ("pandas,numpy", "is not a package"),
        ("../lib", "is a local path"),
        ("x @ https://jane:hunter2@example.com/x.whl", "names a user or a password"),
        ("-ihttps://jane:hunter2@example.com", "-ihttps://…@example.com is an option of pip"),
        ("API_KEY=hunter2", "'API_KEY=…' is not a package"),
        ("jane:hunter2@example.com/x.whl", "…@example.com/x.whl is a local path"),
    ],
)
def test_bad_words(tmp_path: Path, word: str, says: str) -> None:
    with pytest.raises(SourceError) as raised:
        read(BuildSpec(packages=("fine", word)), tmp_path)
    assert says in raised.value.message
    assert "hunter2" not in raised.value.message


def test_an_index_with_a_password_is_refused_and_not_shown(table: Table) -> None:
    from ciao_kernel.errors import DirectiveError, describe
    from ciao_kernel.magics import parse

    text = "%framework=tensorflow\n%pipIndex=https://jane:hunter2@example.com/simple\nprint(1)\n"

    with pytest.raises(DirectiveError) as raised:
        parse.parse(text, table)

    assert "~/.netrc" in raised.value.message
    assert "hunter2" not in "\n".join(describe(raised.value))
    fine = text.replace("jane:hunter2@", "")
    assert parse.parse(fine, table).spec.build.pip_index == "https://example.com/simple"
