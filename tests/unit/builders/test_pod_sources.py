"""Sources of packages that pip in a pod does not have."""

from __future__ import annotations

import pytest

from ciao_kernel.builders import kaniko
from ciao_kernel.delivery.packages.requirements import Requirements
from ciao_kernel.errors import SourceError


def check(line: str) -> None:
    kaniko.check(Requirements((line, "app"), (), "app", ""))


@pytest.mark.parametrize(
    "line",
    [
        "--find-links /wheels", "--find-links '/my wheels' --pre", "--find-links=file:///wheels",
        "--find-links FILE:/wheels", "-f file:///wheels", "-ffile:///wheels", "-f/wheels",
        "--extra-index-url file:///index", "--extra-index-url='file:///index'",
        "--extra-index-url ../index", "--extra-index-url index/simple", "-i file:///index",
        "-i=/index", "--index-url ~/index", "--pre -f wheels/more", "--pre --find-l=/wheels it's",
    ],
)  # fmt: skip
def test_a_path_is_refused_in_each_spelling(line: str) -> None:
    with pytest.raises(SourceError, match="folder of this machine, but a pod"):
        check(line)


@pytest.mark.parametrize(
    "line",
    [
        "--find-links https://a.b/wheels/", "-fhttps://a.b/x", "-i https://a.b/simple/~me/.x",
        "--extra-index-url='http://a.b:80/simple'", "--trusted-host a.b:80", "--no-binary=:all:",
        "--only-binary a,b --pre", "--no-index", "-i=https://a.b/simple",
    ],
)  # fmt: skip
def test_other_values_are_taken(line: str) -> None:
    check(line)


def test_a_folder_as_the_index_of_the_cell_is_refused() -> None:
    with pytest.raises(SourceError, match="folder of this machine, but a pod"):
        kaniko.check(Requirements(("app",), (), "app", "file:///index"))
    kaniko.check(Requirements(("app",), (), "app", "https://a.b/simple"))
