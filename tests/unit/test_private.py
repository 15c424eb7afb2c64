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


@pytest.mark.parametrize("own", [".git", ".git/modules/data"])
def test_data_that_a_repository_keeps_for_its_links(tmp_path: Path, own: str) -> None:
    kept = tmp_path / own / "annex" / "objects" / "aa" / "MD5E-s1--0.csv"
    kept.parent.mkdir(parents=True)
    kept.write_text("1,2\n")
    link = tmp_path / "x.csv"
    link.symlink_to(kept)
    assert not private.reason(link)
    assert private.reason(kept)
    kept.write_text(KEY)
    assert private.reason(link) == "it holds a private key"
    (tmp_path / ".env").symlink_to(kept)
    assert "as a rule" in private.reason(tmp_path / ".env")
    (tmp_path / own / "config").touch()
    (tmp_path / "plain.txt").symlink_to(tmp_path / own / "config")
    assert "own folder" in private.reason(tmp_path / "plain.txt")


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("https://login.corp/oauth?state=s3cret", "https://login.corp"),
        ("https://ada:s3cret@login.corp:8443/t/s3cret", "https://…@login.corp:8443"),
        ("/login?state=s3cret", ""),
        ("http://[s3cret", ""),
        ("", ""),
    ],
)
def test_of_an_address_only_its_host_is_shown(address: str, shown: str) -> None:
    assert private.origin(address) == shown


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
