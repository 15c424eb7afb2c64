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
        ("https://a.b:x y/z@c", None),
        ("https://a.b:x/y z@c", None),
        ("https://a.b see x:y@z", None),
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
        ("https://a.b/x https://conda.anaconda.org/t/ab-123/team", True),
        ("https://conda.anaconda.org/t/AB_c/team", True),
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
        ("https://a.b /t/team/linux-64", None),
        ("'https://a.b'/t/team/linux-64", None),
        ('"https://a.b"/t/team/linux-64', None),
        ("<https://a.b>/t/team/linux-64", None),
        ("(https://forum.b/t/title/12) https://forum.b/t/title/12.", None),
        ("https://forum.b/t/title/12?page=2 https://forum.b/t/title/12#post", None),
        ("https://forum.b/t/title/12345, https://forum.b/t/title/7/2", None),
    ],
)
def test_a_token_is_only_hidden_in_an_address(text: str, shown: str | None) -> None:
    assert redaction.mask(text) == (shown or text)
    assert redaction.password(text) is (redaction.mask(text) != text)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Authorization: Bearer abc.DEF-12~+/=x, next", "Authorization: … …, next"),
        ("Authorization: token abc123, next", "Authorization: …, next"),
        ("proxy: Basic dXNlcjpw end", "proxy: Basic … end"),
        ("Basic abcdef", "Basic …"),
        ("secret-key=one", "secret-key=…"),
        ("{'HF_TOKEN': 'one'}", "{'HF_TOKEN': '…'}"),
        ('{"HF_TOKEN": "hf_abc", "x": 1}', '{"HF_TOKEN": "…", "x": 1}'),
        ("db_password=one;user=ada", "db_password=…;user=ada"),
        ("passwd=one&user=ada", "passwd=…&user=ada"),
        ("(MY-API_KEY : one)", "(MY-API_KEY : …)"),
        ("apikey=one two", "apikey=… two"),
        ("{pwd='one' x}", "{pwd='…' x}"),
        ("[client_secret_value = one]", "[client_secret_value = …]"),
        ("{credential=one}", "{credential=…}"),
        ("credential=one,two", "credential=…,two"),
        ("/b?X-Amz-Signature=dead&x=1", "/b?X-Amz-Signature=…&x=1"),
        ("/b?x=1&sig=Ab%3D", "/b?x=1&sig=…"),
        ("/uploads/7?_state=abc-_ end", "/uploads/7?_state=… end"),
        ("get https://me:one@a.b/t/two/team x", "get https://…@a.b/t/…/team x"),
    ],
)
def test_what_is_taken_out_of_a_log(text: str, shown: str) -> None:
    assert redaction.scrub(text) == shown


@pytest.mark.parametrize(
    "text",
    [
        *("the token was refused", "bearer of news", "forbearer abcdefgh", "bearerabcdefgh"),
        *("password: ", "basic"),
    ],
)
def test_what_only_speaks_of_secrets_stays_in_a_log(text: str) -> None:
    assert redaction.scrub(text) == text


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", 0),
        ("a\nhttps://a.b\n", 0),
        ("//me@a.b\n", 1),
        ("a\nhttps://me:one@a.b\nhttps://me:two@a.b\n", 2),
        ("a\nb\nhttps://a.b/t/one/team", 3),
    ],
)
def test_the_first_line_with_a_secret_is_found(text: str, line: int) -> None:
    assert redaction.line_with_password(text) == line


@pytest.mark.parametrize(
    ("address", "literal"),
    [
        ("https://me:one@a.b", True),
        ("https://:one@a.b", True),
        ("https://me:one/two@a.b", True),
        ("https://me@a.b", False),
        ("https://me:80/x@b", False),
        ("https://a.b/x:y@z", False),
        ("{'https://a.b':x@y}", False),
        ('{"https://a.b":x@y}', False),
        ("https://me:$ONE@a.b", False),
        ("https://me:${ONE}@a.b", False),
        ("https://me:{one}@a.b", False),
        ("https://me:$ONE/two@a.b", False),
    ],
)
def test_a_variable_in_place_of_a_password_is_none(address: str, literal: bool) -> None:
    assert redaction.password(address) is literal
