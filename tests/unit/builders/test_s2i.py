"""What source-to-image would do, as a Dockerfile."""

from __future__ import annotations

from typing import Any

import pytest

from ciao_kernel.builders import s2i
from ciao_kernel.builders.s2i import Scripts
from ciao_kernel.errors import SourceError
from ciao_kernel.oci.image import Image
from ciao_kernel.oci.layer import File

NAME = "registry.local:5000/s2i-python:3.13"
BUILDER = f"registry.local:5000/s2i-python@sha256:{'b' * 64}"
LABELS = (
    f'LABEL "io.openshift.s2i.build.image"="{NAME}" '
    '"io.openshift.s2i.build.source-location"="cell"\n'
)
GID = (
    "RUN grep -q '^[^:]*:[^:]*:1001:' /etc/passwd || "
    "echo 's2i:x:1001:0::/:/bin/sh' >> /etc/passwd\n"
)
PLAIN = Scripts()


def written(
    *own: str,
    known: Scripts = PLAIN,
    variables: tuple[tuple[str, str], ...] = (),
) -> str:
    return s2i.dockerfile(BUILDER, NAME, known, frozenset(own), variables)


def test_the_plain_case() -> None:
    assert written("requirements.txt") == (
        f"FROM {BUILDER}\n{LABELS}USER root\n{GID}"
        "COPY --chown=1001:0 upload/src /tmp/src\n"
        "USER 1001\n"
        "RUN /usr/libexec/s2i/assemble\n"
        'CMD ["/usr/libexec/s2i/run"]\n'
    )


def test_scripts_and_variables_of_the_source() -> None:
    text = written(".s2i/bin/assemble", variables=(("A", 'b "c" $d \\e'), ("F", "")))
    assert text == (
        f"FROM {BUILDER}\n{LABELS}"
        'ENV A="b \\"c\\" \\$d \\\\e" F=""\n'
        f"USER root\n{GID}"
        "COPY --chown=1001:0 upload/scripts /tmp/scripts\n"
        "COPY --chown=1001:0 upload/src /tmp/src\n"
        "USER 1001\n"
        "RUN /tmp/scripts/assemble\n"
        'CMD ["/usr/libexec/s2i/run"]\n'
    )


def test_root_assembles_where_the_label_says_so() -> None:
    text = written(known=Scripts("/s", "root", "/opt"))
    assert text == (
        f"FROM {BUILDER}\n{LABELS}USER root\n"
        "COPY --chown=root:0 upload/src /opt/src\n"
        "RUN /s/assemble\n"
        'CMD ["/s/run"]\n'
    )


def test_any_user_without_a_name_gets_the_group_of_the_folders() -> None:
    text = written(known=Scripts(user="1234"))
    assert GID.replace("1001", "1234") in text
    assert "/etc/passwd" not in written(known=Scripts(user="default"))
    assert "/etc/passwd" not in written(known=Scripts(user="0"))


def image(**labels: Any) -> Image:
    named = {
        f"io.{key.replace('__', '.').replace('_', '-')}": value for key, value in labels.items()
    }
    return Image("", "", {}, {"config": {"Labels": named}})


def test_labels_say_where_scripts_are() -> None:
    assert s2i.scripts(image(), NAME) == Scripts()
    old = image(s2i__scripts_url="image:///a")
    assert s2i.scripts(old, NAME).place == "/a"
    new = image(
        openshift__s2i__scripts_url="image:///b/",
        s2i__scripts_url="image:///a",
        openshift__s2i__assemble_user="7",
        openshift__s2i__destination="/d/",
    )
    assert s2i.scripts(new, NAME) == Scripts("/b", "7", "/d")


@pytest.mark.parametrize(
    "url", ["https://a.b/c", "file:///c", "image://x; rm", "image:///a\nRUN b"]
)
def test_scripts_elsewhere_cannot_be_used(url: str) -> None:
    with pytest.raises(SourceError, match="they must be in the image"):
        s2i.scripts(image(openshift__s2i__scripts_url=url), NAME)


def test_labels_cannot_write_instructions() -> None:
    with pytest.raises(SourceError, match="an invalid user or folder"):
        s2i.scripts(image(openshift__s2i__assemble_user="1\nRUN x"), NAME)


def test_the_environment_file() -> None:
    with pytest.raises(SourceError, match="line 3: 'B C' is not a valid name"):
        s2i.environment("# no\n\nB C=d\n")
    text = "# no\n  # a=1\nA=b=c\n\n=x\nnothing\n F =  x\r\na.b-c=\x0b1\u20282\nA=e"
    assert s2i.environment(text) == (("A", "e"), ("F", "x"), ("a.b-c", "1\u20282"))


def test_the_environment_file_names_no_password() -> None:
    for value in ("https://jane:hunter2@a.b/simple", "https://a.b/t/hunter2/simple"):
        with pytest.raises(SourceError, match="line 2 names a password") as raised:
            s2i.environment(f"A=https://a.b/simple\nPIP_INDEX_URL={value}\n")
        assert "hunter2" not in raised.value.message


def test_scripts_lie_apart_from_the_source() -> None:
    files = [File(".s2i/bin/run", b"x"), File(".s2i/bin/other", b""), File("a/b.py", b"")]
    made = s2i.upload(files)
    assert [(one.path, one.executable) for one in made] == [
        ("upload/scripts/run", True),
        ("upload/src/.s2i/bin/other", False),
        ("upload/src/a/b.py", False),
    ]
    alone = s2i.upload(files[:1])
    assert [one.path for one in alone] == ["upload/scripts/run", "upload/src/.s2ikeep"]
