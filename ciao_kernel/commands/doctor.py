"""``ciao doctor``: check this installation and suggest how to fix its problems."""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import json
import os
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

from ciao_kernel import log
from ciao_kernel.backends.local import interpreter
from ciao_kernel.backends.local.machine import isolation
from ciao_kernel.commands import Caller, kernelspec, report
from ciao_kernel.commands.finding import Finding
from ciao_kernel.commands.image_checks import check_images
from ciao_kernel.commands.shared_arguments import add_output
from ciao_kernel.config import Settings, load_with_errors
from ciao_kernel.config.user_file import can_be_saved
from ciao_kernel.display.columns import columns
from ciao_kernel.display.errors import for_terminal
from ciao_kernel.errors import CiaoError, EnvironmentFault, UsageError
from ciao_kernel.session import named_plugins
from ciao_kernel.visible_text import visible

_NEEDED = (
    "PyYAML", "aiohappyeyeballs", "aiohttp", "argcomplete", "ipykernel", "jupyter_client",
    "kubernetes", "packaging", "psutil", "requests", "rich", "tomlkit",
)  # fmt: skip
_REACHABLE = (
    "every machine that can reach this one can reach the ports of TensorFlow and torchrun in jobs "
    "on this machine, which need no password"
)
_LITTLE = 1 << 30
_PATIENCE = 3.0
"""Seconds in which requests to a cluster that does not answer are retried."""


def arguments(verb: argparse.ArgumentParser) -> None:
    """Add ``--report`` and ``--output``."""
    verb.add_argument(
        "--report",
        action="store_true",
        help="write a text for a bug report: versions, settings, checks, last lines of the log",
    )
    add_output(verb)


async def run(args: argparse.Namespace, caller: Caller) -> None:
    """Write the findings, and fail if one of them is wrong; or write a report.

    Raises:
        UsageError: A report was asked for as JSON.
        EnvironmentFault: A check found a problem.
    """
    if args.report and args.output == "json":
        raise UsageError("a report is text.", "Leave --output json out.")
    settings, faults = load_with_errors()
    if not caller.terminal:
        settings = caller.session.settings  # `%ciao config` changes only this kernel's settings.
    found = [*_python(), *_packages()]
    found += [Finding("wrong", fault.message.rstrip("."), _mend(fault)) for fault in faults]
    found += _settings(settings, faults)
    found += _named_plugins(caller, settings)
    found += [finding async for finding in _frameworks(caller, settings)]
    found += [finding async for finding in _kernelspecs()]
    found += _storage(settings)
    found += [finding async for finding in _network(settings)]
    found += [finding async for finding in _cluster(caller, settings)]
    if args.report:
        caller.write(report.text(caller, _text(found)))
    elif args.output == "json":
        records = [{"level": f.level, "what": f.what, "fix": f.fix} for f in found]
        caller.write(json.dumps(records, indent=2) + "\n")
    else:
        caller.write(_text(found))
    wrong = sum(finding.level == "wrong" for finding in found)
    if wrong and not args.report:
        raise EnvironmentFault(f"{wrong} of {len(found)} checks found a problem.")


def _text(found: list[Finding]) -> str:
    """Return one line per finding, with its fix on the next line: both may be long."""
    rows = [row for f in found for row in ((f.level, f.what), ("", f"→ {f.fix}")) if row[1] != "→ "]
    return columns([map(visible, row) for row in rows]) + "\n"


def _mend(fault: CiaoError) -> str:
    if fault.message.startswith("$"):
        return f"change the variable, or unset it; {for_terminal(fault.hint)}"
    return f"correct the file; {for_terminal(fault.hint)}"


def _python() -> Iterator[Finding]:
    version = ".".join(map(str, sys.version_info[:3]))
    yield Finding("ok", f"Python {version} ({sys.executable})")


def _packages() -> Iterator[Finding]:
    for name in _NEEDED:
        try:
            yield Finding("ok", f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            yield Finding("wrong", f"{name} is not installed", f"pip install {name}")


def _settings(settings: Settings, faults: list[Any]) -> Iterator[Finding]:
    places = ", ".join(sorted(set(settings.origins.values()))) or "built-in only"
    yield Finding("ok", f"settings ({places}{', without invalid values' if faults else ''})")


def _named_plugins(caller: Caller, settings: Settings) -> Iterator[Finding]:
    """Check that the plug-ins exist that the settings name."""
    for name in named_plugins.SETTINGS:
        if fault := named_plugins.fault(name, settings, caller.session.registry):
            # An image of another framework does no harm: the framework may be installed elsewhere.
            level = "note" if name in named_plugins.OF_LATER else "wrong"
            yield Finding(level, fault.message.rstrip("."), _mend(fault))


async def _frameworks(caller: Caller, settings: Settings) -> AsyncIterator[Finding]:
    """Check that local replicas find the package of each framework."""
    registry = caller.session.registry
    python = sys.executable
    try:
        if settings.python:
            named = settings.python
            # A command of PATH does not depend on the working folder, which may be gone.
            folder = caller.folder if shutil.which(named) else caller.folder_of(named)
            python = interpreter.of_setting(settings, folder)
            yield Finding("ok", f"replicas run {python}")
        for fault in registry.faults(settings):
            yield Finding("wrong", fault.message.rstrip("."), for_terminal(fault.hint))
        for name in registry.table.names.frameworks:
            framework = registry.framework(name)
            if not framework.package or framework.package in sys.stdlib_module_names:
                continue  # there is nothing to install
            if await interpreter.has(python, framework.package, interpreter.remedy(settings)):
                yield Finding("ok", f"{name}: the package {framework.package} is installed")
            else:
                where = "" if python == sys.executable else f"{python} -m "
                fix = f"for {name} jobs on this machine: {where}pip install {framework.requirement}"
                yield Finding("note", f"{name}: {framework.package} is not installed", fix)
    except CiaoError as error:
        yield Finding("wrong", error.message.rstrip("."), for_terminal(error.hint))


async def _kernelspecs() -> AsyncIterator[Finding]:
    """Check that each kernelspec of this kernel can start it."""
    from jupyter_client.kernelspec import KernelSpecManager

    try:
        specs = sorted(KernelSpecManager().find_kernel_specs().items())
    except RuntimeError:
        yield Finding("wrong", *kernelspec.NO_HOME)
        return
    found = False
    for name, folder in specs:
        try:
            argv = json.loads(Path(folder, "kernel.json").read_text(encoding="utf-8"))["argv"]
            ours, python = "ciao_kernel" in argv, str(argv[0])
        except (OSError, ValueError, KeyError, TypeError, IndexError):
            if name == "ciao":
                found = True
                fix = f"delete {folder}, then: {_install(name, folder)}"
                yield Finding("wrong", f"kernelspec {name}: {folder}/kernel.json is broken", fix)
            continue
        if not ours:
            continue
        found = True
        # Jupyter replaces a bare "python" with its own interpreter.
        python = python if os.sep in python else sys.executable
        fix = f"in the environment that you use: {_install(name, folder)}"
        try:
            if await interpreter.has(python, "ciao_kernel"):
                yield Finding("ok", f"kernelspec {name} in {folder}")
            else:
                yield Finding("wrong", f"kernelspec {name}: {python} has no ciao", fix)
        except EnvironmentFault:
            gone = "does not run" if Path(python).exists() else "is gone"
            yield Finding("wrong", f"kernelspec {name}: {python} {gone}", fix)
    if not found:
        yield Finding("wrong", "Jupyter has no ciao kernel", "ciao install --sys-prefix")


def _install(name: str, folder: str) -> str:
    """Return the command that writes a kernelspec to its current folder."""
    from jupyter_core.paths import jupyter_data_dir

    named = "" if name == "ciao" else f" --name {name}"
    place = Path(folder).absolute()
    if place.is_relative_to(jupyter_data_dir()):
        return f"ciao install --user{named}"
    if place.is_relative_to(sys.prefix):
        return f"ciao install --sys-prefix{named}"
    if place.parent.parts[-3:] == ("share", "jupyter", "kernels"):
        return f"ciao install --prefix {place.parents[3]}{named}"
    return f"ciao install{named}"


def _storage(settings: Settings) -> Iterator[Finding]:
    """Check the folder of jobs, or the existing folder in which it would be created."""
    by = "ciao config storage" if can_be_saved() else "export CIAO_STORAGE"
    fix = f"choose another folder: {by}=/some/folder"
    place = storage = settings.own_storage
    if reason := settings.own_folder.reason:
        yield Finding("note", f"{reason}, so your jobs are in {storage}")
    try:
        while not place.exists():
            place = place.parent
        with tempfile.TemporaryFile(dir=place):
            free = shutil.disk_usage(place).free
    except OSError as error:
        what = f"jobs cannot be stored in {storage}: {error.strerror} ({place})"
        yield Finding("wrong", what, fix)
        return
    yield Finding("ok", f"log in {log.files(storage)[-1]}")
    text = f"{free / 2**30:.1f} GiB free for jobs in {storage}"
    if free < _LITTLE:
        yield Finding("note", text, f"ciao delete --finished removes old jobs; or {fix}")
    else:
        yield Finding("ok", text)


async def _network(settings: Settings) -> AsyncIterator[Finding]:
    """Report who can reach the replicas of local jobs."""
    try:
        await isolation.check()
    except EnvironmentFault as fault:
        level = "wrong" if isolation.is_isolated(settings) else "note"
        yield Finding(level, f"{_REACHABLE}; {fault.message.rstrip('.')}", for_terminal(fault.hint))
        return
    if isolation.is_isolated(settings):
        yield Finding("ok", "each job on this machine has a network of its own")
    else:
        fix = "a network of its own for each job, without the internet: "
        yield Finding("note", _REACHABLE, fix + "ciao config localNetwork=isolated")


async def _cluster(caller: Caller, settings: Settings) -> AsyncIterator[Finding]:
    """Check that the cluster of jobs answers, has the training operator, and has images to run."""
    from ciao_kernel.kube import access, configured
    from ciao_kernel.kube.client import Client

    if not configured.configured():
        text = "no Kubernetes cluster is configured: jobs run on this machine"
        yield Finding("note", text, "to use a cluster, set KUBECONFIG")
        return
    try:
        async with Client(await access.load(settings.context), _PATIENCE) as client:
            version = await client.get("/version")
            served = await client.find("/apis/kubeflow.org/v1")
            trainer = await client.find("/apis/trainer.kubeflow.org/v1alpha1")
            source = client.access.source
    except CiaoError as error:
        fix = for_terminal(error.hint.rstrip(".")) or "ask the administrator of the cluster"
        yield Finding("wrong", error.message.rstrip("."), fix)
        return
    yield Finding("ok", f"jobs run on Kubernetes {version.get('gitVersion', '')} of {source}")
    if served is None:
        kind = "Indexed Jobs" if trainer is None else "TrainJobs of Kubeflow Trainer"
        text = f"the Kubeflow training operator is not installed there: jobs run as {kind}"
        fix = "Kubernetes 1.31 or newer is enough for them"
        if trainer is not None:
            fix = "each user needs the rights in deploy/rbac/trainer-role.yaml"
        yield Finding("note", text, fix)
    elif trainer is not None:
        yield Finding("ok", "Kubeflow Trainer is installed there: %api=trainer runs TrainJobs")
    registry = caller.session.registry
    with contextlib.suppress(CiaoError):  # a broken plug-in is another finding
        names = registry.table.names.frameworks
        defaults = {name: registry.framework(name).image for name in names}
        async for finding in check_images(defaults, settings):
            yield finding
