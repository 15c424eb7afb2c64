"""The text of ``%dryrun``: objects as YAML that a person can read and kubectl takes."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from ciao_kernel.backends.kubernetes.apis import Api
from ciao_kernel.backends.kubernetes.cluster.target import Target
from ciao_kernel.backends.kubernetes.lifecycle import retry_notices
from ciao_kernel.backends.kubernetes.manifests import manifest, queue_request
from ciao_kernel.backends.kubernetes.submission import choice, validation
from ciao_kernel.backends.kubernetes.submission.prepare import prepare
from ciao_kernel.config import Settings
from ciao_kernel.model import DryRun, Event, Notice, naming
from ciao_kernel.plugins import Builder, Plan


async def text(plan: Plan, builder: Builder, target: Target, settings: Settings) -> str:
    """Return the objects that a run would create.

    With ``%dryrun=server`` the server has checked them and would accept them.

    Args:
        plan: The plan of the run.
        builder: Delivers the source.
        target: Cluster and namespace.
        settings: Images, storage and timeouts.
    """
    asks = plan.spec.dryrun is DryRun.SERVER
    chosen = await choice.choose(plan, target, settings)
    name = (
        await _free(plan, chosen.api, target)
        if asks
        else plan.name or f"{plan.framework.name}-name"
    )
    _, made = await prepare(
        plan, builder, target, settings, lambda _: None, name, chosen.api, chosen.fields
    )
    said: list[Event] = []
    if asks:
        await queue_request.check(plan.spec.cluster, target, settings)
        made = await validation.try_out(target, made, whole=True, emit=said.append)
    own = {one.data.decode() for one in plan.source.own if one.data}
    texts = [as_yaml(item, own) for item in (*made.beside, made.job)]
    verdict = f"# The server of {target.client.access.source} would accept it.\n"
    notice = chosen.notice and f"# {chosen.notice[0].upper()}{chosen.notice[1:]}\n"
    if plan.spec.retries:
        notice += f"# {retry_notices.resubmission(name, replaces=chosen.replaces_disrupted)}\n"
    for one in said:
        notice += f"# {one.text[0].upper()}{one.text[1:]}\n" if isinstance(one, Notice) else ""
    return notice + "---\n".join(texts) + (verdict if asks else "")


async def _free(plan: Plan, api: Api, target: Target) -> str:
    """Return the name that a submission would get."""
    path = manifest.collection(manifest.kind_of(plan, api), target.namespace)
    for number in range(1, naming.MOST + 1):
        name = naming.candidate(plan.name, plan.framework.name, number)
        if not await validation.taken(target, path, name):
            break
    return name


def as_yaml(item: dict[str, Any], compact: Collection[str]) -> str:
    """Return an object as YAML, in which the program has the lines of the cell.

    Args:
        item: The object.
        compact: Texts that are written in few long lines, as nobody reads them: ciao's own modules.
    """
    import yaml

    class Dumper(yaml.SafeDumper):
        """Writes a text of several lines as a literal block, where YAML allows it."""

    def scalar(dumper: Any, value: str) -> Any:
        # PyYAML reads other ends of lines, such as U+0085, correctly only in double quotes.
        plain = not value or value.splitlines() == value.removesuffix("\n").split("\n")
        style = '"' if value in compact or not plain else "|" if "\n" in value else None
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)

    Dumper.add_representer(str, scalar)
    shown: str = yaml.dump(item, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=1000)
    return shown
