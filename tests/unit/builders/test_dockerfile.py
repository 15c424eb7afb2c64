"""Dockerfiles of users: read, and made safe."""

from __future__ import annotations

import re

import pytest

from ciao_kernel.builders import dockerfile, dockerfile_rewrite
from ciao_kernel.errors import SourceError

DIGEST = f"sha256:{'a' * 64}"
BASE = f"host:5000/python@{DIGEST}"
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
    text = dockerfile_rewrite.pinned(OWN, {4: BASE})
    assert text.splitlines()[3] == f"FROM {BASE} AS build"
    assert len(text.splitlines()) == len(OWN.splitlines())
    assert text.splitlines()[13] == OWN.splitlines()[13]


def test_images_that_files_come_from_are_bases_too() -> None:
    text = (
        "ARG TAG=1 NAME=python:$TAG\nFROM ${NAME-other} AS Build\n"
        "COPY --chown=1:2 --from=tools:1 \\\n /a /b/\nFROM build\nFROM ${X-a:2}\nFROM ${X:+b}c\n"
        "COPY --from=BUILD /w /w\nCOPY --from=0 /w /w\nCOPY --from=$X /w /w\nADD --from=x y /\n"
    )
    assert dockerfile.bases(text) == {2: "python:1", 3: "tools:1", 6: "a:2", 7: "c"}
    lines = dockerfile_rewrite.pinned(text, {3: BASE}).splitlines()
    assert lines[2:4] == [f"COPY --from={BASE} --chown=1:2 /a /b/", ""]
    assert lines[4:] == text.splitlines()[4:]


@pytest.mark.parametrize(
    ("text", "known"),
    [
        ("FROM a\nUSER 1\nUSER 1001:0\n", ("1001:0", 0)),
        ("FROM a\n", ("", 1)),
        ("FROM a AS X\nUSER 5\nFROM b\nFROM x\n", ("5", 0)),
        ("FROM a\nUSER 5\n\nFROM b AS x\nFROM X AS y\nFROM y\n", ("", 4)),
    ],
)
def test_whom_the_image_runs_as(text: str, known: tuple[str, int]) -> None:
    assert dockerfile.user(text) == known


def test_variables_in_paths() -> None:
    text = (
        "ARG APP=src\nFROM a\nARG APP\nENV DATA=data/$APP OTHER='x y'\nENV OLD one two\n"
        "COPY ${APP}/ $DATA ${NO:-c.txt} /app\nARG DATA=never\nCOPY $DATA /app\n"
    )
    assert [path for _, path in dockerfile.sources(text)] == [
        "src/",
        "data/src",
        "c.txt",
        "data/src",
    ]
    for text in "FROM a\nCOPY x ${APP}/ /app\n", "ARG APP=x\nFROM a\nCOPY ${APP}/ /app\n":
        with pytest.raises(SourceError, match=r"D, line \d: the path \$\{APP\}/ is unknown"):
            dockerfile.sources(text, "D")
    assert dockerfile.sources("FROM a\nADD --keep-git-dir=false src /x\n") == [(2, "src")]


def test_a_large_context_is_taken_out_of_an_image() -> None:
    text = dockerfile_rewrite.copying_from(
        "FROM a\nCOPY --chown=1:2 x ./y \\\n  /z/\nCOPY . /w\nRUN a\n", BASE
    )
    assert text.splitlines() == [
        "FROM a",
        f'COPY --from={BASE} --chown=1:2 ["/ciao-context/x", "/ciao-context/y", "/z/"]',
        "",
        f'COPY --from={BASE} ["/ciao-context/", "/w"]',
        "RUN a",
    ]


def test_add_does_more_than_an_image_can() -> None:
    with pytest.raises(SourceError, match="line 2: ADD"):
        dockerfile_rewrite.copying_from("FROM a\nADD x.tar /y\n", BASE)
    assert "ADD https://a.b/c /c" in dockerfile_rewrite.copying_from(
        "FROM a\nADD https://a.b/c /c\n", BASE
    )


@pytest.mark.parametrize(
    "line",
    [
        "RUN <<EOF", "RUN <<-'EOF'", 'RUN cat <<"X" > /y', "RUN python3 <<PY", "COPY <<EOF /x",
        "RUN --network=none a 3<<EOF", "RUN\t<<EOF", "ONBUILD RUN <<EOF",
        "RUN true && \\\n cat <<EOF", "RUN echo it's && cat <<EOF", r'RUN echo \" && cat <<EOF',
    ],
)  # fmt: skip
def test_heredocs_are_refused_with_their_line(line: str) -> None:
    with pytest.raises(SourceError, match=r"Dockerfile, line 3: .*here-documents") as refused:
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


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (
            "RUN --network=none --mount=type=secret,id=x pip install y",
            "RUN --mount=type=secret,id=x",
        ),
        ("RUN\t--mount=type=cache,target=/x true", "RUN --mount=type=cache,target=/x"),
        ("RUN --foo-bar=1 --mount=type=cache true", "RUN --mount=type=cache"),
        ("ONBUILD RUN --mount=type=cache true", "RUN --mount=type=cache"),
        ("onbuild onbuild run --mount=type=cache true", "RUN --mount=type=cache"),
        ("RUN --network=none true", "RUN --network=none"),
        ("ADD --checksum=sha256:1 https://a.b/c /c", "ADD --checksum=sha256:1"),
        ("ADD --keep-git-dir=true src /x", "ADD --keep-git-dir=true"),
        ("ADD --exclude=*.pt src /x", "ADD --exclude=*.pt"),
        ("ADD --unpack=false src.tar /x", "ADD --unpack=false"),
        ("COPY --exclude=*.pt src /x", "COPY --exclude=*.pt"),
        ("COPY --parents a/b /x", "COPY --parents"),
    ],
)
def test_flags_that_are_passed_over_are_refused_with_their_line(line: str, says: str) -> None:
    with pytest.raises(SourceError, match=re.escape(f"d, line 2: the builder ignores {says},")):
        dockerfile.check(f"FROM a\n{line}\n", "d")


def test_flags_that_ask_for_nothing_are_taken() -> None:
    dockerfile.check("FROM\ta\nRUN --network=default true\nCOPY --link --chmod=1 a /b\n", "d")


@pytest.mark.parametrize(
    "line",
    [
        "RUN pip install -i https://jane:hunter2@example.com/simple app",
        "RUN conda install -c https://conda.anaconda.org/t/hunter2/team app",
        "ONBUILD ADD https://:hunter2@example.com/x /x",
        "ENV INDEX='https://$USER:hunter2@example.com'",
    ],
)
def test_a_password_is_refused_with_its_line(line: str) -> None:
    with pytest.raises(SourceError, match="d, line 2 names a password or a token") as refused:
        dockerfile.check(f"FROM a\n{line}\n", "d")
    assert "hunter2" not in refused.value.message + refused.value.hint


@pytest.mark.parametrize(
    "line",
    [
        "RUN git clone ssh://git@example.com:22/x",
        "ADD git@example.com:team/x /x",
        "RUN curl https://${WHO}:${WORD}@example.com",
        "RUN curl https://example.com:8080/t/file https://example.com:80/x@2",
        "FROM example.com:5000/t/b:1@sha256:00",
        "RUN curl https://example.com/t/$TOKEN/x",
    ],
)
def test_an_address_without_a_password_is_taken(line: str) -> None:
    dockerfile.check(f"FROM a\n{line}\n", "d")


def test_quotes_of_a_path_are_no_part_of_it() -> None:
    text = 'FROM a\nENV D=x\nCOPY "my.txt" \'b\'/c "$D"/y /x/\nADD "https://a.b/c" "/d"\n'
    assert [path for _, path in dockerfile.sources(text)] == ["my.txt", "b/c", "x/y"]
    text = dockerfile_rewrite.copying_from('FROM a\nCOPY "my.txt" "/x/"\n', BASE)
    assert text.splitlines()[1] == f'COPY --from={BASE} ["/ciao-context/my.txt", "/x/"]'


def test_a_seal_stands_in_every_stage_and_lines_can_be_told() -> None:
    own = "FROM a AS x\nRUN one\n\nFROM --platform=linux/amd64 \\\n  b\nRUN two\n"
    text = dockerfile_rewrite.with_cache_key(own, "team/index")
    seal = "ARG CIAO_PIP_SECRET=team/index"

    assert dockerfile_rewrite.with_cache_key(own, "") == own
    assert text.splitlines() == [
        "FROM a AS x", seal, "RUN one", "", "FROM --platform=linux/amd64    b", seal, "", "RUN two"
    ]  # fmt: skip
    assert [dockerfile_rewrite.original_line(text, line) for line in (1, 3, 5, 8)] == [1, 2, 4, 6]


def test_a_file_without_from() -> None:
    with pytest.raises(SourceError, match="x has no FROM"):
        dockerfile.check("# nothing\n", "x")
