"""Which files are taken for secret ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from ciao_kernel.delivery.input import secret_files
from ciao_kernel.delivery.input.held_file import HeldFile


def reason(file: Path) -> str:
    with HeldFile(file) as held:
        return secret_files.reason(file, held)


KEY = "-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----\n"


@pytest.mark.parametrize("name", [".s3cfg", ".vault-token", "auth.json", ".netrc", "a/id_rsa"])
def test_by_its_name(tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    file.parent.mkdir(exist_ok=True)
    file.write_text("x")
    assert reason(file)


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
    assert bool(reason(file)) is secret


@pytest.mark.parametrize("own", [".git", ".git/modules/data"])
def test_data_that_a_repository_keeps_for_its_links(tmp_path: Path, own: str) -> None:
    kept = tmp_path / own / "annex" / "objects" / "aa" / "MD5E-s1--0.csv"
    kept.parent.mkdir(parents=True)
    kept.write_text("1,2\n")
    link = tmp_path / "x.csv"
    link.symlink_to(kept)
    assert not reason(link)
    assert reason(kept)
    kept.write_text(KEY)
    assert reason(link) == "it holds a private key"
    (tmp_path / ".env").symlink_to(kept)
    assert "usually" in reason(tmp_path / ".env")
    (tmp_path / own / "config").touch()
    (tmp_path / "plain.txt").symlink_to(tmp_path / own / "config")
    assert "a .git folder" in reason(tmp_path / "plain.txt")
