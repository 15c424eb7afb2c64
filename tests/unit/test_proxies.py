"""NO_PROXY as curl, requests and kubectl read it, and which variable names the proxy."""

from __future__ import annotations

import os

import pytest
import requests

from ciao_kernel import proxies

API = "https://10.96.0.1:6443/api"


@pytest.mark.parametrize(
    ("url", "entries", "direct"),
    [
        # hosts, and their subdomains at a dot
        ("https://example.com", "example.com", True),
        ("https://api.example.com", "example.com", True),
        ("https://badexample.com", "example.com", False),
        ("https://example.com", "api.example.com", False),
        ("https://example.com", "other.org,example.com", True),
        ("https://registry", "registry", True),
        # leading dots and asterisks
        ("https://api.example.com", ".example.com", True),
        ("https://example.com", ".example.com", True),
        ("https://api.example.com", "*.example.com", True),
        ("https://badexample.com", ".example.com", False),
        ("https://example.com", ".", False),
        # dots at the end
        ("https://example.com.", "example.com", True),
        ("https://example.com", "example.com.", True),
        # ports
        ("https://example.com:6443", "example.com:6443", True),
        ("https://example.com:6443", "example.com", True),
        ("https://example.com", "example.com:443", True),
        ("http://example.com", "example.com:80", True),
        ("https://example.com", "example.com:6443", False),
        ("https://api.example.com:6443", ".example.com:6443", True),
        (API, "10.96.0.1:6443", True),
        (API, "10.96.0.1:443", False),
        # all
        (API, "*", True),
        (API, "example.com, *", True),
        # addresses, and no names that end like them
        (API, "10.96.0.1", True),
        (API, "10.96.0.10", False),
        (API, "0.1", False),
        ("https://10.96.0.1.example.com", "10.96.0.1", False),
        ("https://[fd00::1]:6443", "fd00::1", True),
        ("https://[fd00::1]:6443", "FD00:0:0::1", True),
        ("https://[fd00::1]:6443", "[fd00::1]", True),
        ("https://[fd00::1]:6443", "[fd00::1]:6443", True),
        ("https://[fd00::1]:6443", "[fd00::1]:443", False),
        ("https://[::ffff:10.96.0.1]:6443", "10.96.0.1", True),
        # networks
        (API, "10.0.0.0/8", True),
        (API, "10.96.0.1/12", True),
        (API, "10.97.0.0/16", False),
        (API, "0.0.0.0/0", True),
        (API, "fd00::/8", False),
        ("https://[fd00::1]:6443", "fd00::/8", True),
        ("https://[fd00::1]:6443", "10.0.0.0/8", False),
        ("https://[::ffff:10.96.0.1]:6443", "10.0.0.0/8", True),
        ("https://example.com", "10.0.0.0/8", False),
        (API, "10.0.0.0/33", False),
        (API, "10.0.0.0/x", False),
        # case and blanks
        ("https://API.Example.com", "example.COM", True),
        ("https://b.org", " a.org , b.org ,", True),
        ("https://b.org", "a.org b.org", True),
        ("https://b.org", "a.org,\tc.org", False),
        ("https://b.org", "", False),
        ("https://b.org", ", ,", False),
        # this machine
        ("https://localhost:6443", "", True),
        ("https://LOCALHOST:6443", "", True),
        ("https://127.0.0.1:6443", "", True),
        ("https://127.8.8.8:6443", "", True),
        ("https://[::1]:6443", "", True),
        ("https://localhost.example.com", "", False),
        # what is no address
        ("https://example.com:99999", "example.com", False),
        ("https://[fd00::1", "*", False),
    ],
)
def test_what_is_reached_without_a_proxy(url: str, entries: str, direct: bool) -> None:
    assert proxies.is_direct(url, entries) is direct


@pytest.mark.parametrize(
    ("url", "entries"),
    [
        ("https://example.com", "example.com"), ("https://api.example.com", "example.com"),
        ("https://api.example.com", ".example.com"),
        ("https://example.com:6443", "example.com:6443"),
        ("https://example.com", "a.org, example.com"), (API, "10.96.0.1"), (API, "10.0.0.0/8"),
        (API, "10.97.0.0/16"), (API, "*"), ("https://example.com", ""), ("https://b.org", "a.org"),
    ],
)  # fmt: skip
def test_it_is_what_requests_does_too(
    url: str, entries: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    variables({}, monkeypatch)
    theirs = requests.utils.should_bypass_proxies(url, no_proxy=entries)
    assert proxies.is_direct(url, entries) is bool(theirs)


def variables(values: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    for name, value in values.items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize(
    ("values", "url", "found"),
    [
        ({}, "https://example.com", ""),
        ({"HTTPS_PROXY": "http://proxy:3128"}, "https://example.com", "http://proxy:3128"),
        ({"https_proxy": "http://proxy:3128"}, "https://example.com", "http://proxy:3128"),
        ({"https_proxy": "http://a", "HTTPS_PROXY": "http://b"}, "https://example.com", "http://a"),
        ({"https_proxy": "", "HTTPS_PROXY": "http://b"}, "https://example.com", ""),
        ({"HTTPS_PROXY": "proxy:3128"}, "https://example.com", "http://proxy:3128"),
        ({"HTTPS_PROXY": "http://proxy:3128"}, "http://example.com", ""),
        ({"HTTP_PROXY": "http://proxy:3128"}, "http://example.com", "http://proxy:3128"),
        ({"ALL_PROXY": "http://all", "HTTPS_PROXY": "http://a"}, "https://example.com", "http://a"),
        ({"ALL_PROXY": "http://all"}, "https://example.com", "http://all"),
        ({"HTTPS_PROXY": "http://a", "NO_PROXY": "10.0.0.0/8"}, API, ""),
        ({"HTTPS_PROXY": "http://a", "no_proxy": "10.0.0.0/8"}, API, ""),
        ({"HTTPS_PROXY": "http://a", "NO_PROXY": "10.0.0.0/8"}, "https://11.0.0.1", "http://a"),
    ],
)
def test_which_variable_names_the_proxy(
    values: dict[str, str], url: str, found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    variables(values, monkeypatch)
    assert proxies.proxy_of(url) == found


def test_kubectl_does_not_know_all_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    variables({"ALL_PROXY": "socks5://proxy:1080"}, monkeypatch)
    assert proxies.proxy_of(API, general=False) == ""
