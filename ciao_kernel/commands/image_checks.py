"""Asks registries whether the images of the frameworks exist, for ``ciao doctor``."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping

from ciao_kernel.background import in_thread
from ciao_kernel.commands.finding import Finding
from ciao_kernel.config import Settings
from ciao_kernel.display.errors import for_terminal
from ciao_kernel.errors import CiaoError, RegistryUnreachable, UsageError

_PATIENCE = 5.0
"""Seconds for all answers: without a network, a name may take minutes to resolve."""
_NODES = "only the nodes must be able to pull it"


async def check_images(
    defaults: Mapping[str, str], settings: Settings, patience: float = _PATIENCE
) -> AsyncIterator[Finding]:
    """Check the image of each framework's replicas on a cluster; all registries are asked at once.

    A missing image is wrong. A registry that does not answer here, or refuses, is only a note: the
    nodes pull the image, and their network and their passwords are not those of this machine.

    Args:
        defaults: The frameworks' own images, by framework.
        settings: Images that replace them, and how registries are reached.
        patience: Seconds after which no answer is awaited any more.
    """
    try:
        _ = settings.authority_file
    except UsageError as error:
        yield Finding("wrong", error.message.rstrip("."), "ciao config registryAuthority=FILE")
        return
    users: dict[str, list[str]] = {}
    for framework, default in defaults.items():
        if image := settings.images.get(framework) or default:
            users.setdefault(image, []).append(framework)
    found = (_check(image, names, settings, patience) for image, names in users.items())
    for finding in await asyncio.gather(*found):
        yield finding


async def _check(image: str, frameworks: list[str], settings: Settings, patience: float) -> Finding:
    jobs = f"{' and '.join(frameworks)} jobs"
    words = " ".join(f"images.{name}=IMAGE" for name in frameworks)
    another = f"%image=IMAGE for one job, or for all jobs: ciao config {words}"
    unchecked = f"the image {image} of {jobs} could not be checked"
    try:
        async with asyncio.timeout(patience):
            if await in_thread(lambda: _exists(image, settings)):
                return Finding("ok", f"the image {image} of {jobs} exists")
    except TimeoutError:
        return Finding("note", f"{unchecked}: its registry does not answer", _NODES)
    except UsageError as error:
        return Finding("wrong", error.message.rstrip("."), another)
    except RegistryUnreachable as error:  # its hint is for who pushes from this machine
        what = f"{unchecked}: {error.message.rstrip('.')}"
        return Finding("note", what, f"check the name; {_NODES}")
    except CiaoError as error:
        what = f"{unchecked}: {error.message.rstrip('.')}"
        return Finding("note", what, f"{_NODES}; {for_terminal(error.hint)}")
    return Finding("wrong", f"there is no image {image}, which {jobs} on the cluster use", another)


def _exists(image: str, settings: Settings) -> bool:
    """Ask the image's registry for the manifest.

    Raises:
        UsageError: The image's name is not valid.
        RegistryFault: The registry does not answer, or refuses.
    """
    from ciao_kernel.oci.image import ACCEPT
    from ciao_kernel.oci.reference import parse
    from ciao_kernel.oci.registries import Registries
    from ciao_kernel.oci.repository import Repository, scope

    registries = Registries(settings.plain_registries, settings.authority_file)
    try:
        reference = parse(image)
        scopes = (scope(reference.repository, "pull"),)
        repository = Repository(registries.of(reference), reference, scopes)
        return bool(repository.has_manifest(reference.version, ACCEPT))
    finally:
        registries.close()
