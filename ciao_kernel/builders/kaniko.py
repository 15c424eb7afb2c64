"""``%builder=kaniko``: builds an environment by commands, and appends the cell to it.

A pod builds the environment once: base, Debian packages, requirements, or a Dockerfile of the
user. The cell is then appended through the registry's API, as with ``%builder=append``.
"""

from __future__ import annotations

from functools import partial

from ciao_kernel.builders import (
    context,
    dockerfile,
    dockerfile_context,
    dockerfile_rewrite,
    environment,
)
from ciao_kernel.builders.environment import REQUIREMENTS_FOLDER
from ciao_kernel.builders.executor import Executor, Recipe, files
from ciao_kernel.builders.images import WORKDIR, ImageBuild, SharedBuildState, automatic
from ciao_kernel.config import Settings
from ciao_kernel.delivery.packages import package_line, pip_settings, requirements
from ciao_kernel.delivery.packages.requirements import Requirements
from ciao_kernel.errors import SourceError, SpecError
from ciao_kernel.model import Artifact, Notice
from ciao_kernel.oci import reference
from ciao_kernel.oci.image import Image
from ciao_kernel.plugins import Build, Emit
from ciao_kernel.redaction import line_with_password


class KanikoBuilder:
    """``%builder=kaniko``.

    Args:
        settings: Registry, its certificate authority, the executor's image.
    """

    name = "kaniko"
    backend = "kubernetes"
    supported_fields = frozenset(
        {"packages", "requirements", "base", "apt", "conda_env", "dockerfile", "pip_secret"}
    )

    def __init__(self, settings: Settings) -> None:
        self._shared_state = SharedBuildState(settings)
        self._executor = Executor(self._shared_state)

    async def build(self, ask: Build, emit: Emit) -> Artifact:
        """Build the environment unless it exists, and append the cell.

        Raises:
            SpecError: No registry is named, or directives contradict each other.
            SourceError: A file cannot be read, or the build failed because of the requirements.
            RegistryFault: A request to a registry fails.
            ClusterFault: The cluster refuses or ends the pod of the build.
        """
        work = await self._shared_state.work(ask, emit)
        spec = ask.spec.build
        wanted = requirements.read(spec, ask.work)
        check(wanted)
        if not (wanted.packages or spec.apt or spec.conda_env or spec.dockerfile):
            return await work.deliver(reference.parse(spec.base or ask.image))
        recipe = await (self._own(work, wanted) if spec.dockerfile else self._ours(work, wanted))
        made = await self._executor.image(work, recipe)
        if made is None:
            return dry_run_artifact(work)
        work.say(f"the environment is {made}")
        return await work.deliver(made)

    async def _ours(self, work: ImageBuild, wanted: Requirements) -> Recipe:
        """Return the recipe of an environment that directives describe."""
        ask, spec = work.ask, work.ask.spec.build
        base = reference.parse(spec.base or ask.image)
        image = await work.inspect(base)
        settings = self._shared_state.settings
        names = unshared_sources(ask, settings, wanted, image)
        if names and wanted.packages and automatic(ask, settings):
            work.say(
                f"pip in the pod does not have the {' and '.join(names)} of pip on this machine: "
                "name an index for pods by %pipIndex, or write %builder=kaniko."
            )
        texts = asked(wanted)
        if spec.conda_env:
            text = context.read(ask.work, spec.conda_env, "%condaEnv")
            if line := line_with_password(text):
                raise SourceError(
                    f"{spec.conda_env}, line {line} names a user or a password, which the "
                    "image would keep.",
                    "Name channels without a password; %pipSecret=NAME works for pip only.",
                )
            texts[f"{REQUIREMENTS_FOLDER}/environment.yml"] = text
        text = environment.environment(
            str(base.at(image.digest)),
            wanted,
            spec.apt,
            bool(spec.conda_env),
            user=image.user,
            python=ask.python,
            secret=has_pip_secret(ask, settings),
        )
        named = [*(f"%{name}" for name in ("apt",) if spec.apt), wanted.label, spec.conda_env or ""]
        return Recipe(text, files(texts), why=", ".join(one for one in named if one))

    async def _own(self, work: ImageBuild, wanted: Requirements) -> Recipe:
        """Return the recipe of the user's Dockerfile, with the packages on top."""
        ask, spec = work.ask, work.ask.spec.build
        name = spec.dockerfile or ""
        for wish, directive in (
            (spec.apt, "apt"),
            (spec.conda_env, "condaEnv"),
            (spec.base, "base"),
        ):
            if wish:
                raise SpecError(
                    f"%dockerfile cannot be combined with %{directive}.",
                    f"Write that part of the environment into {name}.",
                    directive=directive,
                )
        text = context.read(ask.work, name, "%dockerfile")
        dockerfile.check(text, name)
        digests, users = dict[int, str](), dict[int, str]()
        for line, named in dockerfile.bases(text, ask.architecture).items():
            base = reference.parse(named)
            image = await work.inspect(base)
            digests[line], users[line] = str(base.at(image.digest)), image.user
        text = dockerfile_rewrite.pinned(text, digests)
        gather = partial(
            dockerfile_context.gather, ask.work, name, text, work.say, ask.architecture
        )
        taken = await work.thread(gather)
        user, line = dockerfile.user(text)
        secret = has_pip_secret(ask, self._shared_state.settings)
        lines = environment.install(wanted, ask.python, secret=secret)
        lines = environment.as_root(lines, user or users.get(line, ""))
        text += "".join(f"{line}\n" for line in lines)
        ours = files(asked(wanted))
        whole = (*(context.force_include(taken, REQUIREMENTS_FOLDER) if ours else taken), *ours)
        return Recipe(text, whole, name, f"{name} {wanted.label}".strip())


def unshared_sources(
    ask: Build, settings: Settings, wanted: Requirements, image: Image
) -> tuple[str, ...]:
    """Return the settings by which pip takes packages here from where a pod does not.

    There are none if the user has named the sources for pods.

    Args:
        ask: Build request of the cell.
        settings: The Secret with a ``pip.conf`` for pods.
        wanted: The packages.
        image: The base of the build: pip in the pod reads its variables.
    """
    if has_pip_secret(ask, settings) or wanted.names_index:
        return ()
    return pip_settings.own_sources(image.env)


def has_pip_secret(ask: Build, settings: Settings) -> bool:
    """Return whether a Secret brings a ``pip.conf`` into the pod."""
    return bool(ask.spec.build.pip_secret or settings.pip_secret)


def asked(wanted: Requirements) -> dict[str, str]:
    """Return the requirements and constraints for pip as files of a build."""
    if not wanted.packages:
        return {}
    found = {
        f"{REQUIREMENTS_FOLDER}/requirements.txt": "".join(f"{line}\n" for line in wanted.lines)
    }
    if wanted.constraints:
        found[f"{REQUIREMENTS_FOLDER}/constraints.txt"] = "".join(
            f"{line}\n" for line in wanted.constraints
        )
    return found


def check(wanted: Requirements) -> None:
    """Check that pip in a pod can install the requirements.

    Raises:
        SourceError: The requirements name a folder of this machine, a user or a password.
    """
    for place in (
        *wanted.with_credentials,
        *(["%pipIndex"] if line_with_password(wanted.index) else []),
    ):
        raise _personal(place)
    for name in wanted.variables:
        raise SourceError(
            f"the requirements use ${{{name}}}, a variable of this machine, but a pod builds the "
            "image.",
            "Write its value instead.",
        )
    for line in (*wanted.options, *([f"--index-url={wanted.index}"] if wanted.index else [])):
        if package_line.names_local_path(line):
            raise SourceError(
                f"{package_line.shown(line)} is a folder of this machine, but a pod builds the "
                "image.",
                "Name an index that pods can reach: %pipIndex=URL.",
            )


def _personal(place: str) -> SourceError:
    """Return the error for an address with a password: all inputs of a build stay in the image."""
    return SourceError(
        f"{place} names a user or a password, which the image would keep.",
        "Write the address without it: %pipSecret=NAME names a Secret whose pip.conf has the "
        "password.",
    )


def dry_run_artifact(work: ImageBuild) -> Artifact:
    """Return the artifact of a dry run, and tell that an image would be built."""
    ask = work.ask
    work.emit(Notice(f"an image would be built and pushed to {work.target.name}."))
    image, architecture = f"{work.target.name}:not-built-yet", work.platform.architecture
    return Artifact(ask.source, ask.python, WORKDIR, image=image, architecture=architecture)
