"""Write the tables of directives, commands, settings and rights, the Roles and the runtimes.

Run it after a change to ciao_kernel/magics/directives/, ciao_kernel/commands/,
ciao_kernel/config/settings.py, or to the rights that jobs need: ``python docs/generate.py``. With
``--check`` it changes nothing and exits with 1 if a file is stale; a unit test does the same.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable
from pathlib import Path

from ciao_kernel import commands
from ciao_kernel.backends.kubernetes.apis import JOB, OPERATOR_V1, TRAINER
from ciao_kernel.commands.verb_table import VERBS
from ciao_kernel.config import Settings, shown_name
from ciao_kernel.magics.help import directive_help
from ciao_kernel.magics.table import Table
from ciao_kernel.session.plugin_registry import Registry

sys.path.insert(0, str(Path(__file__).resolve().parent))
import rights
import runtimes

ROOT = Path(__file__).resolve().parent.parent
MARKS = re.compile(r"(<!-- (\w+) -->\n).*?(<!-- /\2 -->)", re.DOTALL)


def verbs(_: Table) -> str:
    """Return a section for each verb, with a table of its arguments."""
    parts = []
    for name, known in VERBS.items():
        text = known.help
        top = commands.parser(verb=name)
        [choice] = [one for one in top._actions if isinstance(one, argparse._SubParsersAction)]
        verb = choice.choices[name]
        many = [group for group in verb._action_groups if group.title == "directives"]
        shared = {id(action) for group in many for action in group._group_actions}
        rows = [("Argument", "Meaning")]
        for action in verb._actions:
            if action.dest == "help" or action.help == argparse.SUPPRESS or id(action) in shared:
                continue
            rows.append((f"`{_form(action)}`", (action.help or "").replace("%%", "%")))
        if many:
            rows.append(("`--DIRECTIVE VALUE`", "every directive, as an option"))
        table = directive_help._table(rows) if len(rows) > 1 else ""
        parts.append(f"### {name}\n\n{text[0].upper()}{text[1:]}.\n\n{table}".rstrip() + "\n")
    return "\n".join(parts)


def _form(action: argparse.Action) -> str:
    """Return an argument in the form that users write, with a placeholder for its value."""
    value = str(action.metavar or "|".join(action.choices or ()) or action.dest)
    if not action.option_strings:
        if action.nargs is None:
            return value
        return f"[{value}]" if action.nargs == "?" else f"[{value} …]"
    names = ", ".join(action.option_strings)
    return names if action.nargs == 0 else f"{names} {value}"


def settings(_: Table) -> str:
    """Return the table of all settings."""
    rows = [("Setting", "Meaning", "Value", "Built-in", "Variable")]
    plain = Settings()
    for known in Settings.__dataclass_fields__.values():
        if "kind" not in known.metadata:
            continue
        kind = known.metadata["kind"]
        # The default contains the home folder, which differs between machines.
        value = (
            "~/.local/state/ciao"
            if known.name == "storage"
            else kind.render(getattr(plain, known.name))
        )
        rows.append(
            (
                f"`{shown_name(known.name)}`",
                known.metadata["help"],
                kind.expected,
                f"`{value}`" if value else "–",
                f"`CIAO_{known.name.upper()}`",
            )
        )
    return directive_help._table(rows)


def images(_: Table) -> str:
    """Return the table of the frameworks' own images."""
    registry = Registry(third_party={})
    rows = [("Framework", "Image")]
    for name in registry._names("frameworks"):
        image = registry.framework(name).image
        rows.append((f"`{name}`", f"`{image}`" if image else "none: name one"))
    return directive_help._table(rows)


FILES: dict[str, dict[str, Callable[[Table], str]]] = {
    "README.md": {"directives": directive_help.markdown},
    "docs/magics.md": {"directives": directive_help.reference},
    "docs/commands.md": {"verbs": verbs},
    "docs/settings.md": {"settings": settings},
    "docs/packages.md": {"images": images},
    rights.README: {
        "rules": lambda _: rights.table(OPERATOR_V1),
        "jobrules": lambda _: rights.table(JOB),
        "trainerrules": lambda _: rights.table(TRAINER),
    },
}


def updated(text: str, tables: dict[str, str]) -> str:
    """Return a text with new tables between their marks; all other text stays."""
    return MARKS.sub(
        lambda match: (
            f"{match[1]}\n{tables[match[2]]}\n{match[3]}" if match[2] in tables else match[0]
        ),
        text,
    )


def stale(root: Path = ROOT) -> dict[Path, str]:
    """Return the files with stale tables, each with its correct text."""
    # Without third-party plug-ins: the pages must not depend on other installed packages.
    table = Registry(third_party={}).table
    found = {}
    for name, writers in FILES.items():
        path = root / name
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        tables = {mark: write(table) for mark, write in writers.items()}
        if (wanted := updated(text, tables)) != text:
            found[path] = wanted
    return found | rights.stale(root) | runtimes.stale(root)


def main() -> int:
    """Update the files, or only report the stale ones (``--check``)."""
    parser = argparse.ArgumentParser(description="Write the tables of the docs.")
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 if stale")
    check = parser.parse_args().check
    found = stale()
    for path, text in found.items():
        print(f"{'stale' if check else 'updated'}: {path.relative_to(ROOT)}")
        if not check:
            path.write_text(text, encoding="utf-8")
    return 1 if check and found else 0


if __name__ == "__main__":
    sys.exit(main())
