"""Dockerfiles of deploy/ as the tests' images are made of them."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.cluster import dockerfile, recipes
from tests.cluster.debian import Layer

TEXT = """\
# A comment, with a CMD in it.
FROM debian:trixie-slim
RUN true \\
 && echo one
RUN false && echo never
COPY *.whl /tmp/
RUN echo two
ENV HOME=/home/ada PATH=/opt/bin:$PATH
WORKDIR /work
USER 1000:100
CMD ["sh", "-c", "echo $HOME"]
"""


def read(folder: Path, text: str) -> dockerfile.Dockerfile:
    file = folder / "Dockerfile"
    file.write_text(text)
    return dockerfile.read(file, "PATH=/bin")


def test_what_a_dockerfile_says_is_an_images_config_and_two_scripts(tmp_path: Path) -> None:
    found = read(tmp_path, TEXT)
    assert found.base == "debian:trixie-slim"
    assert found.copies == (("*.whl", "/tmp/"),)
    assert found.config == {
        "Env": ["PATH=/opt/bin:/bin", "HOME=/home/ada"],
        "WorkingDir": "/work",
        "User": "1000:100",
        "Cmd": ["sh", "-c", "echo $HOME"],
    }
    assert "echo two" in found.then
    assert "echo two" not in found.first


def test_a_command_that_fails_in_the_middle_ends_the_script(tmp_path: Path) -> None:
    script = read(tmp_path, TEXT.replace("echo never", "echo never\nRUN echo later")).first
    done = subprocess.run(["sh", "-ec", script], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stdout == "one\n"


def test_what_is_not_known_is_no_part_of_a_dockerfile_here(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="ENTRYPOINT is not known"):
        read(tmp_path, 'FROM debian\nENTRYPOINT ["sh"]\n')


@pytest.mark.parametrize(
    ("made", "layer"),
    [(recipes.KERNEL_FILE, recipes.KERNEL), (recipes.JUPYTER_FILE, recipes.JUPYTER)],
)
def test_deploys_images_begin_as_the_tests_own_and_run_as_a_user(
    made: dockerfile.Dockerfile, layer: Layer
) -> None:
    name, _, digest = made.base.partition("@")
    assert name == f"debian:{layer.stack[-1].suite}-slim"
    assert re.fullmatch(r"sha256:[0-9a-f]{64}", digest)
    assert made.config["User"] == "1000:100"
    assert made.copies == (("*.whl", "/tmp/"),)
