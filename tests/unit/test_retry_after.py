"""How long a busy server wants to be left alone."""

from __future__ import annotations

from email.utils import formatdate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ciao_kernel import retry_after

NOW = 784111777.0  # Sun, 06 Nov 1994 08:49:37 GMT
DAY = 86_400


@pytest.fixture(autouse=True)
def _now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry_after.time, "time", lambda: NOW)


@pytest.mark.parametrize(
    ("said", "seconds"),
    [
        ("7", 7), ("0", 0), (" 12 ", 12), ("0012", 12), ("86399", 86_399),
        ("86401", DAY), ("9" * 9, DAY), ("9" * 5000, DAY),
        ("", None), ("\xb2", None), ("٣", None), ("-1", None), ("1.5", None), ("1e3", None),
        ("soon", None), ("7 s", None), ("nan", None), ("inf", None),
    ],
)  # fmt: skip
def test_a_number_of_seconds(said: str, seconds: float | None) -> None:
    assert retry_after.seconds({"Retry-After": said}) == seconds


@pytest.mark.parametrize(
    ("said", "seconds"),
    [
        ("Sun, 06 Nov 1994 08:50:07 GMT", 30),
        ("Sunday, 06-Nov-94 08:50:07 GMT", 30),  # RFC 850
        ("Sun Nov  6 08:50:07 1994", 30),  # C's asctime
        ("Sun, 06 Nov 1994 08:49:36 GMT", 0),
        ("Thu, 01 Jan 1970 00:00:00 GMT", 0),
        ("Fri, 31 Dec 9999 23:59:59 GMT", DAY),
        ("Sun, 06 Nov 99999 08:50:07 GMT", None),
        ("Sun, 66 Nov 1994 08:50:07 GMT", None),
        ("Sun, 06 Nov 1994 88:50:07 GMT", None),
        ("Sun, 06 Nov 1994 08:50:07 GMT" + " " * 5000 + "x", None),
        ("Sun, 06 Nov", None),
    ],
)
def test_a_date(said: str, seconds: float | None) -> None:
    assert retry_after.seconds({"Retry-After": said}) == seconds


def test_a_date_is_compared_with_the_servers_clock() -> None:
    fast = {"Date": formatdate(NOW + 3600, usegmt=True)}
    assert retry_after.seconds({**fast, "Retry-After": formatdate(NOW + 3605, usegmt=True)}) == 5
    assert retry_after.seconds({**fast, "Retry-After": formatdate(NOW + 5, usegmt=True)}) == 0
    odd = {"Date": "yesterday", "Retry-After": formatdate(NOW + 5, usegmt=True)}
    assert retry_after.seconds(odd) == 5
    assert retry_after.seconds({}) is None


DATE = st.text("SunMoJaFeb0123456789 ,:+-GMTZ.", max_size=40)


@given(st.one_of(st.text(max_size=50), DATE), st.one_of(st.just(""), DATE))
def test_any_text_is_bounded(said: str, date: str) -> None:
    found = retry_after.seconds({"Retry-After": said, "Date": date})
    assert found is None or 0 <= found <= DAY
