"""Authorities that requests to a registry trust, and what the log of ciao has of a request."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
import requests

from ciao_kernel.errors import RegistryFault
from ciao_kernel.oci import connections

VARIABLES = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


def test_an_error_is_logged_without_the_signature_of_its_address(
    caplog: pytest.LogCaptureFixture,
) -> None:
    session = connections.session(plain=True, authority=None)
    with caplog.at_level(logging.DEBUG), pytest.raises(requests.ConnectionError):
        session.get("http://127.0.0.1:9/blob?X-Amz-Credential=a&se=b&sig=s3cret", timeout=5)
    assert "http://127.0.0.1:9/blob failed after" in caplog.text
    assert "ConnectionError" in caplog.text
    assert "s3cret" not in caplog.text
    assert "X-Amz" not in caplog.text


@pytest.mark.parametrize("name", VARIABLES)
@pytest.mark.parametrize(
    ("content", "why"), [(b"no certificate", "it has no certificate"), (b"", "it has no cert")]
)
def test_a_bundle_without_a_certificate_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, content: bytes, why: str
) -> None:
    bundle = tmp_path / "bundle.pem"
    bundle.write_bytes(content)
    monkeypatch.setenv(name, str(bundle))

    with pytest.raises(RegistryFault) as caught:
        connections.session(plain=False, authority=None)

    assert f"the file {bundle} of the variable {name} cannot be used: {why}" in caught.value.message
    assert "PEM" in caught.value.hint


def test_a_bundle_that_cannot_be_read_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = tmp_path / "bundle.pem"
    bundle.symlink_to(bundle)  # root reads any file, but no link to itself
    monkeypatch.setenv(VARIABLES[0], str(bundle))

    with pytest.raises(RegistryFault, match=f"{VARIABLES[0]} cannot be used"):
        connections.session(plain=False, authority=None)


def test_a_bundle_that_is_not_there_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLES[0], str(tmp_path / "none.pem"))

    assert connections.session(plain=False, authority=None)
