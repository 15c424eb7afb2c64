"""The table of all directives that a header may contain.

Parsing, completion, Shift-Tab help, the options of ``ciao run`` and the tables in README and docs
all use this table. Its entries are in :mod:`ciao_kernel.magics.directives`, by subject. A new
directive needs one entry there, and one field in :class:`~ciao_kernel.model.JobSpec`; a new subject
also needs its place in :func:`build`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ciao_kernel.magics import synonyms
from ciao_kernel.magics.directive import Directive as Directive
from ciao_kernel.magics.directive import Scope as Scope
from ciao_kernel.magics.directives import (
    cell_lines,
    cluster,
    dry_run,
    event_folder,
    following,
    images,
    inputs,
    inspecting,
    launch,
    lifetime,
    on_error,
    outputs,
    places,
    plots,
    program,
    resources,
    roles,
    serving,
    surviving,
    usage_columns,
    volumes,
    warm,
)
from ciao_kernel.magics.spelling import key, like

_MENTIONED = re.compile(r"%([A-Za-z][\w-]*)")


@dataclass(frozen=True, slots=True)
class Names:
    """Names of the plug-ins, for the choices in the table; made by the registry."""

    frameworks: Mapping[str, tuple[str, ...]]
    """Roles by framework."""
    builders: tuple[str, ...]
    backends: tuple[str, ...]
    any_language: frozenset[str] = frozenset()
    """Frameworks whose programs need not be Python."""
    forkable: frozenset[str] = frozenset()
    """Frameworks whose programs can run in warm replicas."""
    refused: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Roles by framework that it has only to refuse them with a reason."""


class Table:
    """The directives; lookup ignores case and dashes."""

    def __init__(self, entries: Iterable[Directive], names: Names) -> None:
        self.entries = tuple(entries)
        self.names = names
        self._by_key = {key(entry.name): entry for entry in self.entries}
        self._by_key |= {key(one.option_word): one for one in self.entries if one.option_word}

    def find(self, name: str) -> Directive | None:
        """Return the directive with a name, or None."""
        return self._by_key.get(key(name))

    def nearest(self, name: str) -> str | None:
        """Return the name that is probably meant, for a suggestion, or None."""
        return next(iter(self.suggestions(name)), None)

    def suggestions(self, name: str) -> tuple[str, ...]:
        """Return what an unknown name may mean: what other tools call so, else the nearest name."""
        if known := tuple(one for one in synonyms.meant(name) if self.find(one)):
            return known
        close = sorted(
            (one for one in like(key(name), self._by_key) if one.is_close),
            key=lambda one: one.rank,
        )
        return tuple(self._by_key[one.name].name for one in close[-1:])

    def as_options(self, text: str) -> str:
        """Replace directives in a sentence by options; ``%ciao`` is unchanged."""

        def spelt(match: re.Match[str]) -> str:
            entry = self.find(match[1])
            return entry.option if entry else match[0]

        return _MENTIONED.sub(spelt, text)

    def roles(self, framework: str) -> tuple[str, ...]:
        """Return the roles of a framework; all roles if the name is unknown."""
        every = tuple(e.field for e in self.entries if e.scope is Scope.ROLE)
        return self.names.frameworks.get(framework, every)

    def frameworks(self, role: str) -> tuple[str, ...]:
        """Return the frameworks that have a role and do not refuse it."""
        return tuple(name for name in self.names.frameworks if role in self.offered_roles(name))

    def offered_roles(self, framework: str) -> tuple[str, ...]:
        """Return the roles of a framework as help and Tab show them, without those it refuses."""
        refused = self.names.refused.get(framework, ())
        return tuple(role for role in self.roles(framework) if role not in refused)


def build(names: Names) -> Table:
    """Return the table for the installed plug-ins, in the order of docs and completion."""
    entries = (
        *roles.directives(names.frameworks),
        *resources.directives(),
        *program.directives(),
        *inputs.directives(),
        *outputs.directives(),
        *volumes.directives(),
        *surviving.directives(),
        *serving.directives(),
        *launch.directives(),
        *places.directives(names.backends, names.builders),
        *lifetime.directives(),
        *cluster.directives(),
        *images.directives(),
        *following.directives(),
        *warm.directives(),
        *cell_lines.directives(),
        *plots.directives(),
        *event_folder.directives(),
        *usage_columns.directives(),
        *inspecting.directives(),
        *on_error.directives(),
        *dry_run.directives(),
    )
    return Table(entries, names)
