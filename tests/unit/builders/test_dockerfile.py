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
        "COPY ${APP}/ $DATA ${NO:-c.txt} /app\nARG DATA=later\nCOPY $DATA /app\n"
    )
    assert [path for _, path in dockerfile.sources(text)] == [
        "src/",
        "data/src",
        "c.txt",
        "later",
    ]
    for text in "FROM a\nCOPY x ${APP}/ /app\n", "ARG APP=x\nFROM a\nCOPY ${APP}/ /app\n":
        with pytest.raises(SourceError, match=r"D, line \d: the path \$\{APP\}/ is unknown"):
            dockerfile.sources(text, "D")
    assert dockerfile.sources("FROM a\nADD --keep-git-dir=false src /x\n") == [(2, "src")]


def test_addresses_in_variables_are_no_paths() -> None:
    text = "FROM a\nARG BASE=https://a.b\nADD ${BASE}/x.tgz $BASE/y z /x/\n"
    assert dockerfile.sources(text) == [(3, "z")]


def test_the_architecture_of_the_build_is_known_in_paths() -> None:
    text = "FROM a\nARG TARGETARCH\nCOPY bin-$TARGETARCH /x\n"
    assert dockerfile.sources(text, architecture="arm64") == [(3, "bin-arm64")]
    with pytest.raises(SourceError, match="unknown before the build"):
        dockerfile.sources("FROM a\nCOPY bin-$TARGETARCH /x\n", architecture="arm64")


def test_the_later_one_of_arg_and_env_counts() -> None:
    text = (
        "ARG G=global\nFROM a AS x\nENV D=env G=env\nARG D\nCOPY $D /1\nARG D=arg\nCOPY $D /2\n"
        "ARG G\nCOPY $G /3\nENV D=again\nCOPY $D /4\nARG D=last\nFROM x\nCOPY $D $G /5\n"
    )
    found = [path for _, path in dockerfile.sources(text)]
    assert found == ["env", "arg", "global", "again", "again", "env"]


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
    text = dockerfile_rewrite.with_cache_key("FROM a\nRUN b\nADD x.tar /y\n", "index")
    assert dockerfile_rewrite.added_line(text) == 3
    text = "FROM a\nARG U=https://a.b\nADD $U/c https://a.b/c /c\nCOPY x /x\n"
    assert dockerfile_rewrite.added_line(text) == 0
    assert "ADD $U/c https://a.b/c /c" in dockerfile_rewrite.copying_from(text, BASE)


@pytest.mark.parametrize(
    "line",
    [
        "RUN <<EOF", "RUN <<-'EOF'", 'RUN cat <<"X" > /y', "RUN python3 <<PY", "COPY <<EOF /x",
        "RUN --network=none a 3<<EOF", "RUN\t<<EOF", "ONBUILD RUN <<EOF",
        "RUN true && \\\n cat <<EOF", "RUN echo it's && cat <<EOF", r'RUN echo \" && cat <<EOF',
        "RUN cat << EOF", "RUN echo $((1 + 1)) && cat <<EOF",
    ],
)  # fmt: skip
def test_heredocs_are_refused_with_their_line(line: str) -> None:
    with pytest.raises(SourceError, match=r"Dockerfile, line 3: .*here-documents") as refused:
        dockerfile.check(f"FROM a\n\n{line}\n", "Dockerfile")
    assert "COPY" in refused.value.hint


@pytest.mark.parametrize(
    "line",
    [
        "RUN cat <<< word", "RUN echo $((1<<3)) $((n<<m))", 'RUN echo "$((1 << n))"',
        "RUN bash -c 'cat <<EOF\\nx\\nEOF'",
        'RUN echo "a <<EOF"', "RUN echo a<<b", "# RUN <<EOF", "ENV X=<<EOF",
        'RUN echo "--mount=type=cache"',
    ],
)  # fmt: skip
def test_what_only_looks_like_it_is_taken(line: str) -> None:
    dockerfile.check(f"FROM a\n{line}\n", "Dockerfile")


@pytest.mark.parametrize("shift", ["$((1 << n))", "$((1 << 3))", "$(( 1<<3 ))", "$((1 <<n))"])
def test_a_shift_that_the_parser_takes_for_a_heredoc_is_refused(shift: str) -> None:
    with pytest.raises(SourceError, match=r"d, line 2: the builder takes << in") as refused:
        dockerfile.check(f"FROM a\nRUN echo $((2)) {shift}\n", "d")
    assert "double quotes" in refused.value.hint


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (
            "RUN --mount=type=secret,id=x --network=none pip install y",
            "RUN --mount=type=secret,id=x",
        ),
        ("RUN\t--mount=type=bind,target=/x true", "RUN --mount=type=bind,target=/x"),
        ("RUN --foo-bar=1 --mount=target=/type=cache true", "RUN --mount=target=/type=cache"),
        ("RUN --mount=type=cache,target=/x --mount=type=ssh true", "RUN --mount=type=ssh"),
        ("RUN --mount=type=cache,from=a,target=/x b", "RUN --mount=type=cache,from=a,target=/x"),
        ("ONBUILD RUN --mount=type=tmpfs true", "RUN --mount=type=tmpfs"),
        ("onbuild onbuild run --mount=type=bind true", "RUN --mount=type=bind"),
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
    with pytest.raises(SourceError, match=re.escape(f"d, line 2: {says} is not supported")):
        dockerfile.check(f"FROM a\n{line}\n", "d")


def test_flags_that_ask_for_nothing_are_taken() -> None:
    dockerfile.check("FROM\ta\nRUN --network=default true\nCOPY --link --chmod=1 a /b\n", "d")
    dockerfile.check("FROM a\nRUN --mount=type=cache,target=/root/.cache pip install b\n", "d")


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


@pytest.mark.parametrize(
    ("first", "why", "helps"),
    [
        ("ARG V=3.13.1", "`${V%.*}` is not supported here.", "Write the value."),
        ("ARG V", "V has no value.", "ARG V=value"),
        ("ARG W=1", "V has no value.", "ARG V=value"),
    ],
)
def test_why_an_image_is_unknown(first: str, why: str, helps: str) -> None:
    with pytest.raises(SourceError) as refused:
        dockerfile.check(f"{first}\nFROM python:${{V%.*}}\n", "d")
    assert refused.value.message == f"d, line 2: the image is unknown, because {why}"
    assert helps in refused.value.hint
