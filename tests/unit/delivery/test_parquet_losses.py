"""Tables that a Parquet file would change: %input refuses them, and they come back as a fault."""

from __future__ import annotations

import datetime as dt
import decimal
from typing import Any

import pytest

from ciao_kernel.delivery.input.parquet_losses import LostInParquet, check_kept
from ciao_kernel.delivery.input.value_files import encode
from ciao_kernel.errors import SpecError

np = pytest.importorskip("numpy")
pd = pytest.importorskip("pandas")
pytest.importorskip("pyarrow")

UTC, PARIS = dt.timezone.utc, dt.timezone(dt.timedelta(hours=2))  # noqa: UP017 - as in replicas
LARGE = 2**60 + 1
"""A whole number that no float is."""


def column(*values: Any) -> Any:
    return pd.DataFrame({"x": pd.Series(values, dtype=object)})


@pytest.mark.parametrize(
    ("values", "change"),
    [
        ([{"a": 1}, {"b": 2}], "{'a': 1} becomes {'a': 1.0, 'b': None}"),
        ([{}, {"b": 2}], "{} becomes {'b': None}"),
        ([LARGE, None], f"{LARGE} becomes 1.152921504606847e+18"),
        ([b"a", "a"], "'a' becomes b'a'"),
    ],
)
def test_a_column_that_parquet_changes_is_refused(values: list[Any], change: str) -> None:
    with pytest.raises(SpecError) as caught:
        encode("df", column(*values))
    assert caught.value.message == (
        f"%input cannot take df, a DataFrame: a Parquet file changes the column 'x': {change}."
    )
    assert caught.value.hint.startswith("Give each column one type")
    with pytest.raises(SpecError, match="a Parquet file changes the column 's'"):
        encode("s", column(*values)["x"].rename(None))


@pytest.mark.parametrize(
    "values",
    [
        [[{"a": 1}, {"b": 2}]],
        [{"a": [b"a", "a"]}],
        [[LARGE, None]],
        [np.int64(LARGE), None],
        [{1, 2}],
        [dt.datetime(2026, 1, 1, tzinfo=UTC), dt.datetime(2026, 1, 1, tzinfo=PARIS)],
        [dt.datetime(2026, 1, 1, tzinfo=UTC), dt.datetime(2026, 1, 1)],
        [[dt.datetime(2026, 1, 1, tzinfo=PARIS)]],
    ],
)
def test_values_inside_others_and_times_of_two_zones_are_lost_too(values: list[Any]) -> None:
    with pytest.raises(LostInParquet):
        check_kept(column(*values))


@pytest.mark.parametrize(
    "values",
    [
        ["a", None, float("nan")],
        [1, None],
        [1, 2.5],
        [True, None],
        [[1, 2], (3,), [], None],
        [[[1], [2, 3]], []],
        [[1.5, None], [float("nan")]],
        [np.arange(3.0), np.array([float("nan")])],
        [list(np.arange(3, dtype="float32"))],
        [["a", None]],
        [{"a": 1, "b": [1]}, {"b": [], "a": None}, None],
        [{"a": float("nan")}, {"a": 1.5}],
        [dt.date(2026, 1, 1), None],
        [dt.datetime(2026, 1, 1, tzinfo=PARIS), None],
        [[dt.datetime(2026, 1, 1)], [pd.Timestamp("2026-01-01"), None]],
        [[dt.timedelta(1)]],
        [decimal.Decimal("1.1"), decimal.Decimal("2.25"), None],
        [pd.NA, 1],
    ],
)
def test_values_that_are_equal_again_are_kept(values: list[Any]) -> None:
    check_kept(column(*values))


def test_names_and_the_index_are_compared_too() -> None:
    def change(frame: Any) -> str:
        with pytest.raises(LostInParquet) as caught:
            check_kept(frame)
        return str(caught.value)

    with pytest.warns(UserWarning, match="mixed type"):
        text = change(pd.DataFrame([[1, 2]], columns=["a", 1]))
    assert text == "a Parquet file changes the names of columns: 1 becomes '1'"
    mixed = pd.Index(["a", b"a"], dtype=object)
    text = change(pd.DataFrame({"x": [1, 2]}, index=mixed))
    assert text == "a Parquet file changes the index: 'a' becomes b'a'"
    text = change(pd.DataFrame({"x": pd.Categorical(mixed)}))
    assert text == "a Parquet file changes the column 'x': 'a' becomes b'a'"
    for names in ([3, 4], [("a", 1), ("b", 2)], [1.5, 2.5]):
        check_kept(pd.DataFrame([[1, 2]], columns=pd.Index(names)))


def test_columns_of_one_type_are_not_written_again(monkeypatch: pytest.MonkeyPatch) -> None:
    frame = pd.DataFrame({"text": ["a", None], "number": [1, 2], "kind": pd.Categorical([1, 2])})
    frame["raw"] = pd.Series([b"a", b"b"], dtype=object)
    monkeypatch.setattr(pd, "read_parquet", None)
    check_kept(frame)
