"""Dockerfiles that are written, and users' own that are read."""

from __future__ import annotations

import pytest

from ciao_kernel.builders import dockerfile
from ciao_kernel.errors import SourceError
from ciao_kernel.requirements import Requirements

DIGEST = f"sha256:{'a' * 64}"
BASE = f"host:5000/python@{DIGEST}"
PIP = (
    "PIP_BREAK_SYSTEM_PACKAGES=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 "
    "PIP_NO_INPUT=1 PIP_ROOT_USER_ACTION=ignore PYTHONDONTWRITEBYTECODE=1"
)


def wanted(*lines: str, held: tuple[str, ...] = (), index: str = "") -> Requirements:
    return Requirements(lines, held, " ".join(lines), index)


def test_an_environment_is_written_out() -> None:
    text = dockerfile.environment(
        BASE, wanted("app", held=("lib<2",), index="https://a.b/x?y=1&z=2"), ("git", "libgomp1=1:2")
    )

    assert text == (
        f"FROM {BASE}\n"
        "RUN apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install --yes "
        "--no-install-recommends git libgomp1=1:2 && rm -rf /var/lib/apt/lists/*\n"
        "COPY ciao-asked/requirements.txt ciao-asked/constraints.txt /opt/ciao/\n"
        f"RUN {PIP} PIP_INDEX_URL='https://a.b/x?y=1&z=2' python3 -m pip install "
        "-r /opt/ciao/requirements.txt -c /opt/ciao/constraints.txt\n"
    )


def test_root_does_the_work_and_the_image_is_its_users_again() -> None:
    text = dockerfile.environment(BASE, wanted(), ("git",), user="1001:0")
    lines = text.splitlines()
    assert (lines[1], lines[-1]) == ("USER root", "USER 1001:0")


def test_the_replicas_python_gets_the_packages() -> None:
    text = dockerfile.environment(BASE, wanted("app"), python="/opt/my venv/bin/python")
    assert "'/opt/my venv/bin/python' -m pip install" in text


def test_conda_reads_its_file() -> None:
    text = dockerfile.environment(BASE, wanted(), conda=True)
    assert "COPY ciao-asked/environment.yml /opt/ciao/environment.yml\n" in text
    assert "micromamba install --yes --name base --file /opt/ciao/environment.yml" in text
    assert dockerfile.instructions(text)[-1].name == "RUN"


OWN = """# syntax=whatever
ARG TAG=3.13
ARG BASE="python"
FROM ${BASE}:${TAG} AS build
RUN pip wheel \\
  # a comment in between
  --wheel-dir /w app

from build as again
COPY --from=build /w /w
COPY --chown=1:2 data/*.csv conf/ /data/
ADD https://a.b/c.tar /c
ADD ["a b.txt", "/x/"]
FROM --platform=linux/amd64 $UNKNOWN
FROM scratch
"""


def test_instructions_are_split_as_docker_does() -> None:
    found = dockerfile.instructions(OWN)
    run = found[3]
    assert (run.name, run.rest, run.line, run.end) == (
        "RUN", "pip wheel    --wheel-dir /w app", 5, 7
    )  # fmt: skip
    assert found[6].flags == ("--chown=1:2",)
    assert found[8].words == ("a b.txt", "/x/")


def test_the_files_that_are_taken_along() -> None:
    assert dockerfile.sources(OWN) == [(11, "data/*.csv"), (11, "conf/"), (13, "a b.txt")]


def test_bases_are_pinned_and_lines_keep_their_numbers() -> None:
    assert dockerfile.bases(OWN) == {4: "python:3.13"}
    text = dockerfile.pinned(OWN, {4: BASE})
    assert text.splitlines()[3] == f"FROM {BASE} AS build"
    assert len(text.splitlines()) == len(OWN.splitlines())
    assert text.splitlines()[13] == OWN.splitlines()[13]


def test_a_large_context_is_taken_out_of_an_image() -> None:
    text = dockerfile.through("FROM a\nCOPY --chown=1:2 x ./y \\\n  /z/\nCOPY . /w\nRUN a\n", BASE)
    assert text.splitlines() == [
        "FROM a",
        f'COPY --from={BASE} --chown=1:2 ["/ciao-context/x", "/ciao-context/y", "/z/"]',
        "",
        f'COPY --from={BASE} ["/ciao-context/", "/w"]',
        "RUN a",
    ]


def test_add_does_more_than_an_image_can() -> None:
    with pytest.raises(SourceError, match="line 2: ADD"):
        dockerfile.through("FROM a\nADD x.tar /y\n", BASE)
    assert "ADD https://a.b/c /c" in dockerfile.through("FROM a\nADD https://a.b/c /c\n", BASE)


@pytest.mark.parametrize(
    "line",
    [
        "RUN <<EOF", "RUN <<-'EOF'", 'RUN cat <<"X" > /y', "RUN python3 <<PY", "COPY <<EOF /x",
        "RUN --network=none a 3<<EOF", "RUN true && \\\n cat <<EOF",
    ],
)  # fmt: skip
def test_heredocs_are_refused_with_their_line(line: str) -> None:
    with pytest.raises(SourceError, match=r"Dockerfile, line 3: here-documents") as refused:
        dockerfile.check(f"FROM a\n\n{line}\n", "Dockerfile")
    assert "COPY" in refused.value.hint


@pytest.mark.parametrize(
    "line",
    [
        "RUN cat <<< word", "RUN echo $((1 << 3))", "RUN bash -c 'cat <<EOF\\nx\\nEOF'",
        'RUN echo "a <<EOF"', "RUN echo a<<b", "# RUN <<EOF", "ENV X=<<EOF",
        'RUN echo "--mount=type=cache"',
    ],
)  # fmt: skip
def test_what_only_looks_like_it_is_taken(line: str) -> None:
    dockerfile.check(f"FROM a\n{line}\n", "Dockerfile")


def test_mounts_are_refused_with_their_line() -> None:
    text = "FROM a\nRUN --network=none --mount=type=secret,id=x pip install y\n"
    with pytest.raises(SourceError, match=r"d, line 2: the builder ignores RUN --mount=type=secre"):
        dockerfile.check(text, "d")


def test_a_file_without_from() -> None:
    with pytest.raises(SourceError, match="x has no FROM"):
        dockerfile.check("# nothing\n", "x")
