"""Numbers that a job's replicas have logged, as mappings: metric, then replica, then points."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ciao_kernel.display.plotting import Curve, metric_name
from ciao_kernel.errors import EnvironmentFault
from ciao_kernel.model import Replica

if TYPE_CHECKING:
    import pandas


class Metric(Mapping[str, Curve]):
    """One metric of a job: replica → curve.

    Args:
        name: Name of the metric.
        curves: The curve of each replica that has logged it.
    """

    def __init__(self, name: str, curves: Mapping[str, Curve]) -> None:
        self.name = name
        self._curves = dict(curves)

    @property
    def last(self) -> dict[str, float]:
        """The newest value of each replica."""
        return {replica: curve.last for replica, curve in self._curves.items()}

    def to_frame(self) -> pandas.DataFrame:
        """Return a table with a row for each step and a column for each replica.

        Raises:
            EnvironmentFault: pandas is not installed.
        """
        pandas = _pandas()
        columns = {
            replica: pandas.Series(curve.values, index=curve.steps, dtype=float)
            for replica, curve in self._curves.items()
        }
        axis = next((curve.axis for curve in self._curves.values()), "")
        return pandas.DataFrame(columns).rename_axis(index=axis)

    def __getitem__(self, replica: str | Replica) -> Curve:
        if str(replica) not in self._curves:
            raise _missing(str(replica), self._curves, f"has logged {self.name}")
        return self._curves[str(replica)]

    def __iter__(self) -> Iterator[str]:
        return iter(self._curves)

    def __len__(self) -> int:
        return len(self._curves)

    def __repr__(self) -> str:
        last = ", ".join(f"{replica}: {value:g}" for replica, value in self.last.items())
        return f"<{self.name}, last: {last}>"


class JobMetrics(Mapping[str, Metric]):
    """All metrics of a job: name → metric. Iteration yields the names found in the logs.

    The names are those of ``%plot``: ``val_loss`` for ``Validation/Loss``.

    Args:
        curves: The curves of each replica, by the names of their metrics.
    """

    def __init__(self, curves: Mapping[str, Mapping[str, Curve]]) -> None:
        found: dict[str, dict[str, Curve]] = {}
        for replica, named in curves.items():
            for name, curve in named.items():
                found.setdefault(name, {})[replica] = curve
        self._metrics = {name: Metric(name, by_replica) for name, by_replica in found.items()}

    @property
    def last(self) -> dict[str, dict[str, float]]:
        """The newest value of each metric and replica."""
        return {name: metric.last for name, metric in self.items()}

    def to_frame(self) -> pandas.DataFrame:
        """Return a table with a row for each point: metric, replica, axis, step, value.

        Raises:
            EnvironmentFault: pandas is not installed.
        """
        rows = [
            (name, replica, curve.axis, step, value)
            for name, metric in self.items()
            for replica, curve in metric.items()
            for step, value in curve
        ]
        return _pandas().DataFrame(rows, columns=["metric", "replica", "axis", "step", "value"])

    def __getitem__(self, name: str) -> Metric:
        plain = metric_name(name)
        for one in (plain, f"train_{plain}"):
            if one in self._metrics:
                return self._metrics[one]
        raise _missing(name, self._metrics, "was found in the logs")

    def __iter__(self) -> Iterator[str]:
        return iter(self._metrics)

    def __len__(self) -> int:
        return len(self._metrics)

    def __repr__(self) -> str:
        return f"<metrics: {', '.join(self._metrics) or 'none'}>"


class _Sentence(str):
    """A text that KeyError shows as it is; of a plain text it shows the repr."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def _missing(name: str, known: Iterable[str], found: str) -> KeyError:
    names = list(known)
    near = difflib.get_close_matches(name, names, n=1)
    hint = f"Did you mean {near[0]!r}?" if near else f"There are: {', '.join(names) or 'none'}."
    return KeyError(_Sentence(f"no {name!r} {found}. {hint}"))


def _pandas() -> Any:
    try:
        import pandas
    except ImportError:
        raise EnvironmentFault(
            "to_frame() needs pandas, which this kernel's Python does not have.",
            "Install it: %pip install pandas.",
        ) from None
    return pandas
