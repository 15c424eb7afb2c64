"""``ciao doctor``: look at this installation and say how to mend what is wrong."""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import json
import os
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ciao_kernel.commands import Face, add_output
from ciao_kernel.display.table import columns
from ciao_kernel.errors import EnvironmentFault

HELP = "check Python, packages, kernelspec, settings and what a cluster would need"

_NEEDED = ("ipykernel", "jupyter_client", "psutil", "rich", "argcomplete")


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at. ``level`` is ``ok``, ``note`` or ``wrong``."""

    level: str
    what: str
    fix: str = ""


def arguments(verb: argparse.ArgumentParser) -> None:
    """Only ``--output``."""
    add_output(verb)


async def run(args: argparse.Namespace, face: Face) -> None:
    """Write the findings; fails if one of them is wrong."""
    found = [
        *_python(),
        *_packages(),
        *_frameworks(face),
        *_kernelspec(),
        *_storage(face),
        *_cluster(),
    ]
    if args.output == "json":
        records = [{"level": f.level, "what": f.what, "fix": f.fix} for f in found]
        face.write(json.dumps(records, indent=2) + "\n")
    else:
        face.write(columns((f.level, f.what, f.fix) for f in found) + "\n")
    wrong = sum(finding.level == "wrong" for finding in found)
    if wrong:
        raise EnvironmentFault(f"{wrong} of {len(found)} checks found a fault.")


def _python() -> Iterator[Finding]:
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info >= (3, 11):
        yield Finding("ok", f"Python {version} ({sys.executable})")
    else:
        yield Finding("wrong", f"Python {version}", "ciao needs Python 3.11 or newer")


def _packages() -> Iterator[Finding]:
    for name in _NEEDED:
        try:
            yield Finding("ok", f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            yield Finding("wrong", f"{name} is not installed", f"pip install {name}")


def _frameworks(face: Face) -> Iterator[Finding]:
    registry = face.session.registry
    for name in registry.table.names.frameworks:
        framework = registry.framework(name)
        if importlib.util.find_spec(framework.package):
            yield Finding("ok", f"{name}: the package {framework.package} is here")
        else:
            fix = f"for jobs on this machine: pip install {framework.requirement}"
            yield Finding("note", f"{name}: no package {framework.package}", fix)


def _kernelspec() -> Iterator[Finding]:
    from jupyter_client.kernelspec import KernelSpecManager

    found = False
    manager = KernelSpecManager()
    for name, folder in sorted(manager.find_kernel_specs().items()):
        argv = manager.get_kernel_spec(name).argv
        if "ciao_kernel" not in argv:
            continue
        found = True
        python = argv[0]
        if os.sep in python and not Path(python).exists():
            fix = f"ciao install --name {name}, from the environment that you use"
            yield Finding("wrong", f"kernelspec {name}: {python} is gone", fix)
        else:
            yield Finding("ok", f"kernelspec {name} in {folder}")
    if not found:
        yield Finding("wrong", "Jupyter knows no ciao kernel", "ciao install --sys-prefix")


def _storage(face: Face) -> Iterator[Finding]:
    settings = face.session.settings
    changed = ", ".join(sorted(set(settings.origins.values()))) or "built-in only"
    yield Finding("ok", f"settings ({changed})")
    place = settings.storage
    while not place.exists():
        place = place.parent
    if not os.access(place, os.W_OK):
        fix = "ciao config storage=/some/folder"
        yield Finding("wrong", f"{settings.storage} cannot be written", fix)
        return
    free = shutil.disk_usage(place).free
    text = f"{free / 2**30:.1f} GiB free for jobs in {settings.storage}"
    if free < 2**30:
        yield Finding("note", text, "ciao delete --finished removes old jobs")
    else:
        yield Finding("ok", text)


def _cluster() -> Iterator[Finding]:
    """What a cluster would need. Nothing is asked over the network."""
    config = Path(os.environ.get("KUBECONFIG", "~/.kube/config").split(os.pathsep)[0]).expanduser()
    account = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")
    if account.exists():
        yield Finding("note", "a Kubernetes service account is here; jobs still run on this machine")
    elif config.exists():
        yield Finding("note", f"{config} names a cluster; jobs still run on this machine")
    else:
        yield Finding("note", "no Kubernetes cluster is set up: jobs run on this machine")
