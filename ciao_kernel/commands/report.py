"""Text for a bug report: versions, settings, checks and the last lines of the log."""

from __future__ import annotations

import importlib.metadata
import platform
import time
from collections.abc import Iterable, Iterator

from ciao_kernel import __version__
from ciao_kernel.commands import Caller, log
from ciao_kernel.display.columns import columns
from ciao_kernel.errors import EnvironmentFault
from ciao_kernel.home_folder import home
from ciao_kernel.redaction import scrub

_LINES = 300
_PACKAGES = (
    "ipykernel",
    "ipython",
    "jupyter_client",
    "kubernetes",
    "jupyter_server",
    "jupyterlab",
    "notebook",
    "jupyter_enterprise_gateway",
    "sos",
    "sos-notebook",
    "aiohttp",
    "requests",
    "urllib3",
    "psutil",
    "rich",
    "pip",
    "tensorflow",
    "tensorflow-cpu",
    "torch",
)
_BEFORE = (
    "Read this before you publish it. Passwords and tokens are left out, but names of machines, "
    "namespaces, images and files are not."
)


def text(caller: Caller, checks: str) -> str:
    """Return the report.

    Args:
        caller: The caller of the verb.
        checks: The findings of ``ciao doctor``, as text.
    """
    settings = caller.session.settings
    rows = [(name, value, origin) for name, value, origin, _ in settings.rows()]
    try:
        lines = log.tail(settings.own_storage, _LINES)
    except EnvironmentFault as error:
        lines = [error.message]
    parts = (
        (f"ciao {__version__}, {time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())}", [_BEFORE]),
        ("Versions", _versions()),
        ("Settings", columns(rows).splitlines()),
        ("Checks", checks.splitlines()),
        ("Log", lines or ["The log is empty."]),
    )
    return _without_home(scrub("".join(_part(title, body) for title, body in parts)))


def _part(title: str, lines: Iterable[str]) -> str:
    """Return a part in Markdown, which issue trackers render."""
    body = "\n".join(line.replace("```", "'''") for line in lines)
    return f"## {title}\n\n```text\n{body}\n```\n\n"


def _versions() -> Iterator[str]:
    yield f"Python {platform.python_version()} ({platform.python_implementation()})"
    yield platform.platform()
    for name in _PACKAGES:
        try:
            yield f"{name} {importlib.metadata.version(name)}"
        except importlib.metadata.PackageNotFoundError:
            continue


def _without_home(text: str) -> str:
    """Write ``~`` for the home folder, whose path has the user's name."""
    folder = str(home())
    return text.replace(folder, "~") if len(folder) > 1 else text
