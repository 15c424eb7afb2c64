"""Users, passwords and tokens in addresses are hidden."""

from __future__ import annotations

import pytest

from ciao_kernel import redaction


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("https://login.corp/oauth?state=s3cret", "https://login.corp"),
        ("https://ada:s3cret@login.corp:8443/t/s3cret", "https://…@login.corp:8443"),
        ("https://ada:s3c/ret@login.corp:8443/x", "https://…@login.corp:8443"),
        ("/login?state=s3cret", ""),
        ("http://[s3cret", ""),
        ("", ""),
    ],
)
def test_of_an_address_only_its_host_is_shown(address: str, shown: str) -> None:
    assert redaction.origin(address) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("-i https://ada:s3/c/ret@a.b/simple x", "-i https://…@a.b/simple x"),
        ("https://ada:/s3cret@a.b/x https://c.d/y@1", "https://…@a.b/x https://c.d/y@1"),
        ("https://ada:123456/s3cret@a.b", "https://…@a.b"),
        ("git+https://a.b:8443/lib@v1", None),
        ("git+https://a.b/lib@v1#egg=x", None),
        ("https://a.b:8443?x=/y@z", None),
        ("https://[::1]:8443/lib@v1", None),
    ],
)
def test_a_password_may_contain_a_slash(text: str, shown: str | None) -> None:
    assert redaction.mask(text) == (shown or text)
    assert redaction.password(text) is bool(shown)


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
    assert bool(redaction.password(text)) is secret


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (
            "https://a.b/t/s3cret/team,https://a.b/t/s3cret/other",
            "https://a.b/t/…/team,https://a.b/t/…/other",
        ),
        ("(https://a.b/x://c/t/s3cret/team)", "(https://a.b/x://c/t/…/team)"),
        ("file:///t/s3cret/team", "file:///t/…/team"),
        ("https://t/team/linux-64", "https://t/team/linux-64"),
        ("/t/team/linux-64 https://a.b", "/t/team/linux-64 https://a.b"),
        ("https://forum.b/t/title/12345, https://forum.b/t/title/7/2", None),
    ],
)
def test_a_token_is_only_hidden_in_an_address(text: str, shown: str | None) -> None:
    assert redaction.mask(text) == (shown or text)
    assert redaction.password(text) is (redaction.mask(text) != text)
