"""Parses a cell, and collects everything that its job needs: the plan.

Nothing is created here; a wrong cell is refused with the line of its mistake.
"""

from __future__ import annotations

import asyncio
import posixpath
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ciao_kernel.config import Settings
from ciao_kernel.errors import SpecError
from ciao_kernel.magics import parse, render, spec_reader
from ciao_kernel.magics.header import Style
from ciao_kernel.magics.overrides import (
    check_backoff_limit,
    check_command,
    check_roles,
    check_serve,
    check_volumes,
    merge,
)
from ciao_kernel.magics.parse import Parsed
from ciao_kernel.magics.scanned_cell import ScannedCell
from ciao_kernel.magics.table import Table
from ciao_kernel.magics.written import as_written
from ciao_kernel.model import DryRun, Job, JobSpec, Owner, RestartPolicy, Source, VolumeKind
from ciao_kernel.model.outputs import OUTPUT_WAY, OutputWay
from ciao_kernel.model.volume import overlap
from ciao_kernel.plugins import AnyLanguage, Plan
from ciao_kernel.session import made_folders, named_plugins
from ciao_kernel.session.plugin_registry import Registry
from ciao_kernel.visible_text import listed

if TYPE_CHECKING:
    from ciao_kernel.delivery.input.program import Program

_CHECKPOINT = "checkpoint"
"""The folder of ``%checkpoint`` (``delivery.checkpoints.WHERE``, which is imported late)."""
_LISTED = 8
"""Maximum number of paths that a notice names."""


def parse_cell(
    cell: str | ScannedCell,
    registry: Registry,
    settings: Settings,
    *,
    style: Style | None = None,
    options: Mapping[str, list[str]] | None = None,
    variables: Mapping[str, Any] | None = None,
) -> Parsed:
    """Parse a cell; the spec includes the roles that its framework adds.

    Args:
        cell: The cell or file.
        registry: Has the directives and finds the framework.
        settings: The default framework and interpreter.
        style: Marker of directives in a text that was not scanned; None is that of a cell.
        options: Options of the command line, by name.
        variables: The notebook's variables, for ``{name}`` in values.

    Raises:
        UsageError: The text is wrong, or the setting ``framework``.
    """
    table, options = registry.table, dict(options or {})
    default = (options.get("framework") or [settings.framework])[-1] or None
    # Another interpreter may accept syntax that this one rejects.
    own = not settings.python
    parsed = parse.parse(
        cell,
        table,
        style=style or Style.CELL,
        default_framework=default,
        check_syntax=own,
        variables=variables,
    )
    given = parse.option_tokens(options)
    changed = {spec_reader.find(token, table).field for token in given}
    spec = merge(parsed.spec, spec_reader.read(given, table, parsed.spec.framework), changed)
    parsed = replace(parsed, tokens=parsed.tokens + given)
    if spec.framework == settings.framework:
        named_plugins.check("framework", settings, registry)
    framework = registry.framework(spec.framework)
    try:
        check_roles(spec, framework)
        check_command(spec, framework)
        check_serve(spec, framework)
        check_volumes(spec)
        completed = framework.complete(spec)
        check_backoff_limit(spec, completed, framework)
    except SpecError as error:
        raise parsed.locate(error) from None
    groups = tuple(group for group in completed.groups if group.count)
    spec = replace(completed, groups=groups)
    spec_reader.check_follow(spec, parsed.tokens, table)
    return replace(parsed, spec=spec)


def check_outputs(spec: JobSpec) -> None:
    """Check that no file of ``%output`` is in a volume or a checkpoint: it stays there in any case.

    Raises:
        SpecError: One is, or files are to come by two ways.
    """
    if len(set(spec.output_ways)) > 1:
        named = " and ".join(f"{OUTPUT_WAY}{way}" for way in spec.output_ways)
        raise SpecError(
            f"files come back by one way, and %output names {named}.",
            "Leave one of them out.",
            directive="output",
        )
    by_claim = OutputWay.CLAIM in spec.output_ways
    for word in spec.output_paths:
        path = posixpath.normpath(word)
        if spec.checkpoint is not None and overlap(path, _CHECKPOINT):
            raise SpecError(
                f"%output names {word}, and %checkpoint keeps the folder {_CHECKPOINT}: its files "
                "stay there.",
                "Leave it out of %output, or let the program write a copy elsewhere.",
                directive="output",
            )
        for one in spec.all_volumes:
            is_claim = one.kind is VolumeKind.CLAIM and one in spec.shared_volumes
            read_there = by_claim and is_claim
            if overlap(path, one.where) and not read_there:
                raise SpecError(
                    f"%output names {word}, and the volume {one} is there: its files stay in it.",
                    "Name another folder in %output or %volume.",
                    directive="output",
                )


async def make_plan(
    parsed: Parsed,
    program: Program,
    registry: Registry,
    owner: Owner,
    settings: Settings,
    variables: Mapping[str, Any] | None,
    passed_over: str = "",
) -> Plan:
    """Collect everything that a job needs from this machine.

    Args:
        parsed: The cell, from :func:`parse_cell`.
        program: Where the program is and how it starts.
        registry: Has the directives and finds the framework.
        owner: Owner of the job.
        settings: Whether replicas can be inspected.
        variables: The notebook's variables, for ``%input``; None if there is no notebook.
        passed_over: Why breakpoint() is passed over, to end a sentence; "" if it is not.

    Raises:
        SpecError: The cell names something that cannot be delivered.
        SourceError: A file cannot be read.
    """
    # Late: `ciao jobs` plans nothing.
    from ciao_kernel.delivery.input import imports
    from ciao_kernel.delivery.input.variables import deliver, module_code
    from ciao_kernel.delivery.packages import requirements

    spec, folder = parsed.spec, program.folder
    framework = registry.framework(spec.framework)
    python = not isinstance(framework, AnyLanguage)
    _check_on_error(spec, settings, python=python)
    source = await asyncio.to_thread(
        imports.gather,
        parsed.code,
        folder,
        spec.files,
        program.entry if python else imports.TEXT,
        module_code(spec.inputs, variables),
        module=program.module if python else "",
        files_folder=program.files_folder,
        python=python,
    )
    if spec.build.packages or spec.build.requirements:
        await asyncio.to_thread(requirements.check, spec.build, folder)
    if spec.inputs:
        source = await asyncio.to_thread(deliver, source, spec.inputs, variables)
    made_folders.check(spec, source)
    if spec.outputs or spec.kept_paths:
        from ciao_kernel.delivery.output import results

        source = results.with_files(source, spec)
    if python and (spec.inspect or settings.inspect) == "on":
        from ciao_kernel.delivery import inspection

        source = inspection.with_files(source, passed_over, settings.debug_wait, spec.on_error)
    header = shown_header(spec, registry.table)
    written = as_written(parsed.tokens, registry.table)
    return Plan(spec.name, spec, framework, source, folder, header, owner, written)


def shown_header(spec: JobSpec, table: Table) -> str:
    """Return a header for records and lists: %dryrun is not part of the job, variables are secret.

    Args:
        spec: The job.
        table: The directives.
    """
    return render.render(replace(spec, dryrun=DryRun.NO), table, secrets=False)


def _check_on_error(spec: JobSpec, settings: Settings, *, python: bool) -> None:
    """Check that a job has the debugger that ``%onError`` needs, and starts no program again.

    A program that waits for the end of the one with the prompt would keep the next start waiting;
    and the one with the prompt may be lost, with nobody to say that it is over.

    Raises:
        SpecError: It has none, or starts programs again.
    """
    if spec.on_error is None:
        return
    fault, hint, again = "", "", _starts_again(spec)
    if not python:
        fault, hint = "a program in Python", "Leave %onError out."
    elif spec.warm is not None:
        fault, hint = "replicas of its own", "Leave %warm out, or %onError."
    elif (spec.inspect or settings.inspect) != "on":
        fault, hint = "ciao's debugger in the replicas", "Write %inspect=on, or leave %onError out."
    elif again:
        fault = "a failed program that is not started again"
        hint = f"Leave {again} out, or %onError."
    if fault:
        raise SpecError(f"%onError=debug needs {fault}.", hint, directive="onError")


def _starts_again(spec: JobSpec) -> str:
    """Return the directives by which a job starts programs again, as part of a sentence; or ""."""
    if spec.elastic:  # has a restart policy too
        return "%min and %max"
    if spec.retries:
        return "%retries"
    never = spec.cluster.restart_policy in (None, RestartPolicy.NEVER)
    return "" if never else "%restartPolicy"


def plan_again(
    job: Job,
    header: str,
    shown: str,
    source: Source,
    folder: Path,
    registry: Registry,
    settings: Settings,
    owner: Owner,
) -> Plan:
    """Return the plan of a job that has run already.

    Args:
        job: That job: the plan is for its place, and its name with the next number.
        header: Its directives with all their values.
        shown: Its header as lists show it.
        source: Its source.
        folder: The user's working folder.
        registry: Finds the framework.
        settings: The default interpreter.
        owner: Owner of the new job.

    Raises:
        UsageError: The header is of another version of ciao.
    """
    parsed = parse_cell(f"{header}\npass\n", registry, settings)
    spec, cluster = parsed.spec, parsed.spec.cluster
    if spec.warm is not None:  # nothing keeps the replicas of the new job
        spec = replace(spec, warm=None)
        shown = shown_header(spec, registry.table)
    if job.on_cluster:
        context = job.context or cluster.context
        cluster = replace(cluster, context=context, namespace=job.place)
    spec = replace(spec, name=spec.name or job.name, cluster=cluster)
    framework = registry.framework(spec.framework)
    return Plan(spec.name, spec, framework, source, folder, shown, owner)


def delivery_notices(plan: Plan) -> Iterator[str]:
    """Yield notices about the files that are sent with the code."""
    from ciao_kernel.delivery.input.variables import MODULE

    source = plan.source
    if source.modules:
        names = listed([file.path for file in source.modules], _LISTED)
        yield f"included, because the code imports them: {names}"
    if plan.spec.inputs:
        sent = [file.path for file in source.files if file.data is not None]
        named = [path for path in sent if Path(path).stem in (*plan.spec.inputs, MODULE)]
        yield f"included, because %input names them: {listed(named, _LISTED)}"
        if others := [path for path in sent if path not in named]:
            yield f"included, because functions of %input use them: {listed(others, _LISTED)}"
    yield from source.notes
