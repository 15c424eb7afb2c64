"""Dockerfiles that are written for what directives ask for."""

from __future__ import annotations

from ciao_kernel.builders import dockerfile, environment
from ciao_kernel.delivery.packages.requirements import Requirements

DIGEST = f"sha256:{'a' * 64}"
BASE = f"host:5000/python@{DIGEST}"
PIP = (
    "PIP_BREAK_SYSTEM_PACKAGES=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 "
    "PIP_NO_INPUT=1 PIP_ROOT_USER_ACTION=ignore PYTHONDONTWRITEBYTECODE=1"
)


def wanted(*lines: str, held: tuple[str, ...] = (), index: str = "") -> Requirements:
    return Requirements(lines, held, " ".join(lines), index)


def test_an_environment_is_written_out() -> None:
    text = environment.environment(
        BASE, wanted("app", held=("lib<2",), index="https://a.b/x?y=1&z=2"), ("git", "libgomp1=1:2")
    )

    assert text == (
        f"FROM {BASE}\n"
        "RUN apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install --yes "
        "--no-install-recommends git libgomp1=1:2 && rm -rf /var/lib/apt/lists/*\n"
        "COPY ciao-asked/requirements.txt ciao-asked/constraints.txt /opt/ciao/\n"
        f"RUN {PIP} PIP_INDEX_URL='https://a.b/x?y=1&z=2' PIP_EXTRA_INDEX_URL=' ' "
        "PIP_FIND_LINKS=' ' PIP_NO_INDEX=0 python3 -m pip install "
        "-r /opt/ciao/requirements.txt -c /opt/ciao/constraints.txt\n"
    )


def test_the_index_of_the_cell_leaves_no_other_source_but_those_of_a_secret() -> None:
    for secret in True, False:
        text = environment.environment(BASE, wanted("app", index="https://a.b"), secret=secret)
        assert ("PIP_INDEX_URL=https://a.b " in text) != secret
        assert ('PIP_INDEX_URL="$index"' in text) == secret
        assert ("PIP_EXTRA_INDEX_URL=' '" not in text) == secret
    assert "PIP_EXTRA_INDEX_URL" not in environment.environment(BASE, wanted("app"))


def test_root_does_the_work_and_the_image_is_its_users_again() -> None:
    text = environment.environment(BASE, wanted(), ("git",), user="1001:0")
    lines = text.splitlines()
    assert (lines[1], lines[-1]) == ("USER root", "USER 1001:0")


def test_the_replicas_python_gets_the_packages() -> None:
    text = environment.environment(BASE, wanted("app"), python="/opt/my venv/bin/python")
    assert "'/opt/my venv/bin/python' -m pip install" in text


def test_conda_reads_its_file() -> None:
    text = environment.environment(BASE, wanted(), conda=True)
    assert "COPY ciao-asked/environment.yml /opt/ciao/environment.yml\n" in text
    assert "micromamba install --yes --name base --file /opt/ciao/environment.yml" in text
    assert dockerfile.instructions(text)[-1].name == "RUN"


def test_root_needs_no_word() -> None:
    for user in ("", "0", "root", "root:root"):
        assert "USER" not in environment.environment(BASE, wanted(), ("git",), user=user)
    assert environment.as_root([], "1001") == []
