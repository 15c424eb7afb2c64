"""What the log of ciao has of a request to a registry or a blob store."""

from __future__ import annotations

import logging

import pytest
import requests

from ciao_kernel.oci import connections


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
