"""Which files are taken for secret ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from ciao_kernel import private

KEY = "-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----\n"


@pytest.mark.parametrize("name", [".s3cfg", ".vault-token", "auth.json", ".netrc", "a/id_rsa"])
def test_by_its_name(tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    file.parent.mkdir(exist_ok=True)
    file.write_text("x")
    assert private.reason(file)


@pytest.mark.parametrize(
    ("name", "text", "secret"),
    [
        ("pip.conf", "[global]\nindex-url = https://jane:hunter2@pypi.corp/simple\n", True),
        ("pip.conf", "[global]\nindex-url = https://pypi.corp/simple\n", False),
        ("pip.ini", "[global]\nextra-index-url=https://token@pypi.corp/simple\n", True),
        (".condarc", "channels:\n  - https://conda.anaconda.org/t/ab-123/jane\n", True),
        (".condarc", "channels:\n  - conda-forge\n", False),
        ("notes.txt", f"\n{KEY}", True),
        ("notes.txt", f"Bag Attributes\n    localKeyID: 01\n{KEY}", True),
        ("key.txt", KEY.replace("RSA ", ""), True),
        ("key.txt", KEY.replace("\n", "\r\n"), True),
        ("crypto.py", f'KEY = """\n{KEY}"""\n', False),
        ("README.md", f"Like this:\n\n{KEY}", False),
        ("notes.txt", "It begins with -----BEGIN PRIVATE KEY-----.\n", False),
    ],
)
def test_by_what_it_holds(tmp_path: Path, name: str, text: str, secret: bool) -> None:
    file = tmp_path / name
    file.write_bytes(text.encode())
    assert bool(private.reason(file)) is secret


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("https://conda.anaconda.org/t/ab-123/team", True),
        ("https://conda.anaconda.org/t/ab-123/3team/linux-64", True),
        ("https://user:word@host/simple", True),
        ("see https://discuss.pytorch.org/t/cuda-error/12345", False),
        ("(https://discuss.pytorch.org/t/cuda-error/12345/7)", False),
        ("https://user@host/t.html", False),
    ],
)
def test_a_token_in_an_address_is_told_from_the_topic_of_a_forum(text: str, secret: bool) -> None:
    assert bool(private.password(text)) is secret
