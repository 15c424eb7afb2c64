"""What apt and conda bring: built by a pod, from a repository that a test serves."""

from __future__ import annotations

import pytest

from ciao_kernel.errors import SourceError
from tests.e2e.images.conftest import Maker
from tests.e2e.images.copies import layered
from tests.helpers import debs

pytestmark = pytest.mark.second("builders")
CELL = "import os\nprint(open('/usr/share/ours/text').read(), os.getuid(), {!r})"
# Stands in for a program that no index of Debian or Python has; what it is asked for is real.
MICROMAMBA = """#!/bin/sh
set -e
if [ "$1" = clean ]; then exit; fi
test "$1 $2 $3 $4 $5" = "install --yes --name base --file"
mkdir -p /usr/share/ours
grep -o 'ours=[0-9.]*' "$6" | tr -d '\\n' > /usr/share/ours/text
"""


def base(maker: Maker, image: str, **files: str) -> str:
    """An image with further files, by its digest; their paths have ``__`` for ``/``."""
    told = {path.replace("__", "/"): text for path, text in files.items()}
    return layered(maker.cluster, image, f"{maker.repository}-base", told)


def test_apt_installs_as_root_and_the_image_runs_as_its_own_user(maker: Maker) -> None:
    with debs.serving(maker.cluster.at.host_address) as repository:
        repository.add("ours", "1.2", {"usr/share/ours/text": "from a package"})
        image = base(maker, "s2i-python", **{"etc__apt__sources.list": repository.source})
        wishes = (f"%base={image}", "%apt=ours=1.2")

        first = maker.run(CELL.format("one"), *wishes)
        asked = len(repository.asked)
        edited = maker.run(CELL.format("two"), *wishes)
        gone = maker.run(CELL.format("three"), f"%base={image}", "%apt=ours nobody-has")

    assert maker.lines(first) == ["from a package 1001 one"]
    assert "/ours_1.2_all.deb" in repository.asked
    assert maker.lines(edited) == ["from a package 1001 two"]
    assert "[build] " not in edited.display.notices
    assert asked < len(repository.asked)  # by the last cell alone
    assert isinstance(gone.error, SourceError)
    assert "Unable to locate package nobody-has" in gone.error.message + gone.error.hint
    assert maker.left() == []


@pytest.mark.second("builders")
def test_conda_is_asked_for_what_the_file_says(maker: Maker) -> None:
    (maker.team.folder / "environment.yml").write_text("dependencies:\n  - ours=1.2\n")
    image = base(maker, "python", **{"usr__local__bin__micromamba": MICROMAMBA})

    ran = maker.run(CELL.format("one"), f"%base={image}", "%condaEnv=environment.yml")
    without = maker.run(CELL.format("two"), "%condaEnv=environment.yml")

    assert maker.lines(ran) == ["ours=1.2 0 one"]
    assert isinstance(without.error, SourceError)
    assert "there is no conda in this image" in without.error.message + without.error.hint
    assert maker.left() == []
