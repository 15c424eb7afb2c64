"""What a registry that says no is asked next."""

from __future__ import annotations

import pytest

from ciao_kernel.oci.registry_errors import Answer, Requester, pause, refusal


@pytest.mark.parametrize(
    ("said", "seconds"),
    [("7", 7), ("0", 1), ("", 1), ("-1", 1), ("soon", 1), ("Thu, 01 Jan 1970 00:00:00 GMT", 1)],
)
def test_how_long_to_wait(said: str, seconds: float) -> None:
    assert pause({"Retry-After": said}, 1) == seconds


@pytest.mark.parametrize(
    ("said", "expired"),
    [
        ("DENIED: Your authorization token has expired. Reauthenticate and try again.", True),
        ("DENIED: the credentials are expired", True),
        ("DENIED: your subscription has expired", False),
        ("DENIED: not authorized to perform ecr:BatchGetImage", False),
        ("", False),
    ],
)
def test_only_a_login_that_has_expired_needs_a_new_one(said: str, expired: bool) -> None:
    fault = refusal(Answer(403, {}, b"", ""), Requester("host", "AWS"), "pull host/a", said)
    assert fault.hint.startswith("`docker login host`" if expired else "Ask for that right")
    assert fault.message.startswith(
        "the registry host does not accept the credentials of AWS (pull host/a): "
        if expired
        else "AWS has no right to pull host/a"
    )
    assert said.rstrip(".") in fault.message
