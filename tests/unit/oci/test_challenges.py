"""What a registry asks for in WWW-Authenticate."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ciao_kernel.oci.auth import challenges


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("", []),
        ("Basic", [("basic", {})]),
        ('Basic realm="a registry"', [("basic", {"realm": "a registry"})]),
        ('BASIC realm="x", charset="UTF-8"', [("basic", {"realm": "x", "charset": "UTF-8"})]),
        (
            'Bearer realm="https://auth.example.com/token",service="r",'
            'scope="repository:a/b:pull,push repository:c:pull",error="insufficient_scope"',
            [
                (
                    "bearer",
                    {
                        "realm": "https://auth.example.com/token",
                        "service": "r",
                        "scope": "repository:a/b:pull,push repository:c:pull",
                        "error": "insufficient_scope",
                    },
                )
            ],
        ),
        (
            'Bearer realm="https://a/t" , service = "s", Basic realm="b"',
            [("bearer", {"realm": "https://a/t", "service": "s"}), ("basic", {"realm": "b"})],
        ),
        ("Negotiate, Basic realm=b", [("negotiate", {}), ("basic", {"realm": "b"})]),
        (r'Basic realm="a \"b\", c"', [("basic", {"realm": 'a "b", c'})]),
        (
            "Bearer realm=https://a/t,service=s",
            [("bearer", {"realm": "https://a/t", "service": "s"})],
        ),
        ('realm="of nothing"', []),
    ],
)
def test_kinds_and_parameters(header: str, expected: list[tuple[str, dict[str, str]]]) -> None:
    assert challenges(header) == expected


VALUES = st.text(st.characters(codec="ascii", exclude_categories=["Cc"]), max_size=20)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["bearer", "basic", "negotiate"]),
            st.dictionaries(st.sampled_from(["realm", "service", "scope"]), VALUES, max_size=3),
        ),
        max_size=3,
    )
)
def test_what_is_written_is_read_back(offers: list[tuple[str, dict[str, str]]]) -> None:
    def quoted(value: str) -> str:
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'

    header = ", ".join(
        " ".join([kind, ", ".join(f"{name}={quoted(value)}" for name, value in asked.items())])
        for kind, asked in offers
    )
    assert challenges(header) == offers


@given(st.text(max_size=200))
def test_any_text_ends(header: str) -> None:
    challenges(header)


@pytest.mark.parametrize("header", ["Basic" + " " * 60_000 + "\x01", "a" * 60_000, '"' * 60_000])
def test_a_long_header_takes_no_time(header: str) -> None:
    """A pattern that tries each space twice would take minutes: the test would be ended."""
    challenges(header)
