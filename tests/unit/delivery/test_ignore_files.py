"""Files that say what stays at home, held against git's own mind."""

from __future__ import annotations

import os
import subprocess
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ciao_kernel.delivery.input import ignore_files
from ciao_kernel.delivery.input.ignore_files import IgnoreFiles
from ciao_kernel.errors import SourceError

PATHS = ("a", "b.log", "ab", "a b", "!a", "d/a", "d/b.log", "d/e/a", "d/e/b.log", "e/d/a", "[a]")
LINES = st.lists(
    st.lists(
        st.sampled_from(["a", "b", "d", "e", "*", "**", "/", "?", "!", ".log", "[ab]", "[!a]"])
        | st.sampled_from(["#", "\\a", "\\!", "\\[", " ", "[^a]", "[]a]", "d/", "/**/", "*.log"]),
        min_size=1,
        max_size=4,
    )
    .map("".join)
    # In a longer name git takes ** now for one star and now for something else.
    .filter(lambda line: all(part == "**" or "**" not in part for part in line.split("/"))),
    max_size=4,
)


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with all of the paths."""
    folder = tmp_path_factory.mktemp("repository")
    for name in PATHS:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        if not (folder / name).exists():
            (folder / name).touch()
    git(folder, "init", "--quiet")
    return folder


def git(folder: Path, *words: str, given: str = "") -> str:
    """Run git without anybody's settings."""
    known = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    ran = subprocess.run(
        ["git", *words], cwd=folder, input=given.encode(), capture_output=True, check=False,
        env={**os.environ, **known, "HOME": str(folder)},
    )  # fmt: skip
    assert ran.returncode in (0, 1), ran.stderr
    return ran.stdout.decode()


@settings(
    max_examples=150, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
@given(top=LINES, below=LINES)
def test_what_git_leaves_out_stays(repository: Path, top: list[str], below: list[str]) -> None:
    (repository / ".gitignore").write_text("\n".join(top))
    (repository / "d" / ".gitignore").write_text("\n".join(below))
    told = git(repository, "check-ignore", "--no-index", "-z", "--stdin", given="\0".join(PATHS))

    home = IgnoreFiles(repository)

    assert [path for path in PATHS if home.excluded_by(path)] == [
        path for path in PATHS if path in told.split("\0")
    ]


@pytest.mark.parametrize(
    "line",
    [
        *(f"[[:{name}:]]" for name in ("digit", "alpha", "alnum", "upper", "lower", "xdigit")),
        *(f"[[:{name}:]]" for name in ("space", "blank", "punct", "graph", "print", "cntrl")),
        "*[[:digit:]]", "[![:digit:]]", "[^[:alpha:]_]", "[[:upper:]x-z]", "[[:digit:]-z]",
        "[[:space:]-z]", "[[:digit:]--0]", "[A-[:digit:]]", "[[:digit]", "[x[:digit:]",
        "[[:]", "[[:]]", "[[::]x]", "[[:odd:]x]", "[[:DIGIT:]]", "[]-a]", "[a-]", "[\\[:digit:]]",
        "[a&&b]", "[a~~b||^]", "**a", "a**", "*\\**", "?**", "**/**/a", "d/**/**", "d/**/**/**/a",
        "a\x0bb", "a\x0cb", "a\u2028b", "a\rb", "Icon\r\r", "a\r", "a \r", "a\r ",
    ],
)  # fmt: skip
def test_what_git_reads_in_a_line(tmp_path: Path, line: str) -> None:
    git(tmp_path, "init", "--quiet")
    (tmp_path / ".gitignore").write_bytes(f"{line}\nc\n".encode())
    names = [*map(chr, range(1, 127)), "a1", "ba", "a*", "1]", ":]", "d]", "x]", "d/a", "d/e/a"]
    names += ["a\x0bb", "a\u2028b", "a\rb", "a\r", "Icon", "Icon\r"]
    names = [name for name in names if name not in "./"]
    given = "\0".join(f"./{name}" for name in names)

    told = git(tmp_path, "check-ignore", "--no-index", "-z", "--stdin", given=given).split("\0")

    home = IgnoreFiles(tmp_path)
    assert [name for name in names if home.excluded_by(name)] == [
        name for name in names if f"./{name}" in told
    ]


PARTS = st.lists(st.sampled_from(["a", "b", "*", "?", "[ab]", "[!a]"]), min_size=1, max_size=9)
PATTERNS = st.lists(PARTS.map("".join) | st.just("**"), min_size=1, max_size=5)
NAMES = st.lists(st.text("ab", min_size=1, max_size=9), min_size=1, max_size=6)


def fits(parts: list[str], names: list[str]) -> bool:
    """Whether a pattern matches a path, by all ways to take folders for two stars."""
    if not parts:
        return not names
    if parts == ["**"]:
        return bool(names)
    if parts[0] == "**":
        return any(fits(parts[1:], names[at:]) for at in range(len(names) + 1))
    return bool(names) and fnmatchcase(names[0], parts[0]) and fits(parts[1:], names[1:])


@settings(max_examples=500, deadline=None, derandomize=True)
@given(parts=PATTERNS, names=NAMES)
def test_stars_match_as_they_do_one_by_one(parts: list[str], names: list[str]) -> None:
    (rule,) = ignore_files.git("/" + "/".join(parts))
    assert bool(rule.pattern.fullmatch("/".join(names))) == fits(parts, names)


@pytest.mark.parametrize("line", ["*a" * 20 + "b", "*a" * 20 + "*/b", "**/a/" * 20 + "b"])
@pytest.mark.parametrize("read", [ignore_files.git, ignore_files.docker, ignore_files.s2i])
def test_many_stars_do_not_multiply(read: Any, line: str) -> None:
    rules = read(line)
    for path in ("a" * 250, "a/" * 500 + "a"):
        for rule in rules if isinstance(rules, tuple) else rules.rules:
            assert not rule.pattern.fullmatch(path)


@pytest.mark.parametrize("line", ["*" * 40 + " data " + "*" * 40 + "!", "**/" * 40 + "data"])
@pytest.mark.parametrize("name", [".gitignore", ".dockerignore", ".s2iignore"])
def test_a_row_of_stars_costs_no_more_than_one(tmp_path: Path, name: str, line: str) -> None:
    (tmp_path / name).write_text(line)
    assert not IgnoreFiles(tmp_path).excluded_by("/".join([" data" * 9] * 20))


@pytest.mark.parametrize(
    ("text", "path", "stays"),
    [
        ("x", "x", True),
        ("x\\ ", "x ", True),
        ("x  ", "x", True),
        ("\\#x", "#x", True),
        ("\\!x", "!x", True),
        ("[z-a]", "z", False),
        ("[z", "[z", False),
        ("[\\]z]", "]", True),
        ("z\\", "z", False),
        ("/", "x", False),
        ("\ufeffx", "x", True),
        ("x\r\n", "x", True),
    ],
)
def test_lines_of_odd_forms(tmp_path: Path, text: str, path: str, stays: bool) -> None:
    (tmp_path / ".gitignore").write_bytes(text.encode())
    assert bool(IgnoreFiles(tmp_path).excluded_by(path)) is stays


@pytest.mark.parametrize("name", [".gitignore", ".dockerignore", ".s2iignore"])
def test_a_file_that_is_too_large_is_not_cut(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("#" * (1 << 20) + "\nsecret\n")
    with pytest.raises(SourceError, match="cannot be read: it is larger than a megabyte"):
        IgnoreFiles(tmp_path).excluded_by("secret")
