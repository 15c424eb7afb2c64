"""``%builder=s2i``: builds an environment with the scripts of a builder image.

Any builder image of source-to-image works, without the program s2i and without a daemon: a
Dockerfile does the same steps, and a pod builds it. The scripts get the requirements, ``%files``
and the folder ``.s2i``. The cell is appended to the result, so an edited cell needs no new build.

https://github.com/openshift/source-to-image/blob/master/docs/builder_image.md
"""

from __future__ import annotations

import contextlib
import json
import posixpath
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from ciao_kernel.builders import context
from ciao_kernel.builders.executor import Executor, Recipe
from ciao_kernel.builders.images import ImageBuild, SharedBuildState
from ciao_kernel.builders.kaniko import asked, check, dry_run_artifact
from ciao_kernel.config import Settings
from ciao_kernel.delivery.input import ignore_files
from ciao_kernel.delivery.packages import requirements
from ciao_kernel.delivery.packages.package_line import shown
from ciao_kernel.delivery.packages.requirements import Requirements
from ciao_kernel.errors import SourceError, SpecError
from ciao_kernel.model import Artifact
from ciao_kernel.oci import reference
from ciao_kernel.oci.image import Image
from ciao_kernel.oci.layer import File
from ciao_kernel.plugins import Build, Emit
from ciao_kernel.redaction import password

SCRIPTS = "/usr/libexec/s2i"
_OWN = (".s2i/bin/assemble", ".s2i/bin/run", ".s2i/bin/save-artifacts")
_USER = re.compile(r"[A-Za-z0-9_.-]+(:[A-Za-z0-9_.-]+)?")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_ENVIRONMENT = ".s2i/environment"
_REQUIREMENTS = "requirements.txt"
"""File of the packages that scripts install."""


class S2IBuilder:
    """``%builder=s2i``.

    Args:
        settings: Registry, its certificate authority, the executor's image.
    """

    name = "s2i"
    backend = "kubernetes"
    supported_fields = frozenset({"packages", "requirements", "s2i_builder", "pip_secret"})

    def __init__(self, settings: Settings) -> None:
        self._shared_state = SharedBuildState(settings)
        self._executor = Executor(self._shared_state)

    async def build(self, ask: Build, emit: Emit) -> Artifact:
        """Let the scripts build the environment unless it exists, and append the cell.

        Raises:
            SpecError: No builder image or no registry is named, or the packages would replace the
                ``requirements.txt`` of ``%files``.
            SourceError: A file cannot be read, or a script failed.
            RegistryFault: A request to a registry fails.
            ClusterFault: The cluster refuses or ends the pod of the build.
        """
        spec = ask.spec.build
        builder = spec.s2i_builder or self._shared_state.settings.s2i_builder
        if not builder:
            raise SpecError(
                "%builder=s2i needs a builder image.",
                "Name one: %s2iBuilder=registry.example.com/s2i/python:3.13, or "
                "`%ciao config s2iBuilder=…`.",
                directive="builder",
            )
        work = await self._shared_state.work(ask, emit)
        wanted = requirements.read(spec, ask.work)
        check(wanted)
        named = reference.parse(builder)
        if not (named.tag or named.digest):
            named = replace(named, tag="latest")
        image = await work.inspect(named)
        known = scripts(image, str(named))
        texts = {name.rpartition("/")[2]: text for name, text in asked(wanted).items()}
        if "constraints.txt" in texts:  # scripts support one file only
            texts[_REQUIREMENTS] += "-c constraints.txt\n"
        if wanted.index and wanted.packages:
            texts[_REQUIREMENTS] = f"--index-url {wanted.index}\n{texts[_REQUIREMENTS]}"
        files = await work.thread(lambda: _source(work, texts, wanted))
        own = frozenset(one.path for one in files)
        variables = environment(
            context.read_optional(ask.work, _ENVIRONMENT) if _ENVIRONMENT in own else ""
        )
        text = dockerfile(str(named.at(image.digest)), str(named), known, own, variables)
        label = wanted.label or "its source"
        recipe = Recipe(text, upload(files), why=f"{label}, by {named.name}")
        made = await self._executor.image(work, recipe)
        if made is None:
            return dry_run_artifact(work)
        work.say(f"the environment is {made}")
        return await work.deliver(made)


@dataclass(frozen=True, slots=True)
class Scripts:
    """Settings from the labels of a builder image.

    Args:
        place: Folder of its scripts.
        user: User that runs the scripts.
        destination: Folder that the source is copied into.
    """

    place: str = SCRIPTS
    user: str = "1001"
    destination: str = "/tmp"


def scripts(image: Image, name: str) -> Scripts:
    """Read the labels of a builder image.

    Args:
        image: The builder image.
        name: Its name, for messages.

    Raises:
        SourceError: The scripts are not in the image, or a label is invalid.
    """
    labels = image.labels
    url = labels.get("io.openshift.s2i.scripts-url") or labels.get("io.s2i.scripts-url")
    url = url or f"image://{SCRIPTS}"
    place = url.removeprefix("image://")
    if place == url or not re.fullmatch(r"/[\w./-]+", place):
        raise SourceError(
            f"the scripts of {name} are at {url[:200]}; they must be in the image.",
            "Name a builder image that contains its scripts (image://…).",
        )
    user = labels.get("io.openshift.s2i.assemble-user") or "1001"
    destination = labels.get("io.openshift.s2i.destination") or "/tmp"
    if not _USER.fullmatch(user) or not re.fullmatch(r"/[\w./-]*", destination):
        raise SourceError(f"the labels of {name} contain an invalid user or folder.")
    return Scripts(place.rstrip("/"), user, destination.rstrip("/"))


def dockerfile(
    builder: str,
    name: str,
    known: Scripts,
    source: frozenset[str],
    variables: Sequence[tuple[str, str]] = (),
) -> str:
    """Write a Dockerfile with the steps of source-to-image.

    Args:
        builder: The builder image, by its digest.
        name: The builder image as the user wrote it.
        known: Settings from its labels.
        source: Paths of the source's files, which may include scripts.
        variables: Environment variables of the scripts and the program.
    """
    labels = {
        "io.openshift.s2i.build.image": name,
        "io.openshift.s2i.build.source-location": "cell",
    }
    own = source & set(_OWN)
    place = known.destination
    owner = known.user if ":" in known.user else f"{known.user}:0"

    def script(which: str) -> str:
        here = f".s2i/bin/{which}" in own
        return f"{place}/scripts/{which}" if here else posixpath.join(known.place, which)

    lines = [f"FROM {builder}", f"LABEL {_pairs(sorted(labels.items()), quoted=True)}"]
    if variables:
        lines.append(f"ENV {_pairs(variables)}")
    lines.append("USER root")
    if known.user.isdigit() and known.user != "0":
        # For a user without an entry, the executor uses a group of its own. Docker uses
        # group 0, which owns the folders of builder images.
        lines.append(
            f"RUN grep -q '^[^:]*:[^:]*:{known.user}:' /etc/passwd || "
            f"echo 's2i:x:{known.user}:0::/:/bin/sh' >> /etc/passwd"
        )
    if own:
        lines.append(f"COPY --chown={owner} upload/scripts {place}/scripts")
    lines.append(f"COPY --chown={owner} upload/src {place}/src")
    if known.user != "root":
        lines.append(f"USER {known.user}")
    lines += [f"RUN {script('assemble')}", f"CMD {json.dumps([script('run')])}"]
    return "".join(f"{line}\n" for line in lines)


def _pairs(pairs: Iterable[tuple[str, str]], *, quoted: bool = False) -> str:
    def text(value: str) -> str:
        return '"' + re.sub(r'([$"\\])', r"\\\1", value) + '"'

    return " ".join(f"{text(key) if quoted else key}={text(value)}" for key, value in pairs)


def environment(text: str) -> tuple[tuple[str, str], ...]:
    """Read ``.s2i/environment``: lines ``NAME=value``; other lines are ignored.

    Raises:
        SourceError: A name is invalid, or a value has a password.
    """
    found: dict[str, str] = {}
    for number, line in enumerate(text.split("\n"), 1):
        name, equals, value = (part.strip() for part in line.partition("="))
        if not equals or not name or name.startswith("#"):
            continue
        if not _NAME.fullmatch(name):
            raise SourceError(f"{_ENVIRONMENT}, line {number}: {name[:80]!r} is not a valid name.")
        if password(value):
            raise SourceError(
                f"{_ENVIRONMENT}, line {number} names a password or a token, which the image would "
                "keep.",
                "Write the address without it: %pipSecret=NAME names a Secret whose pip.conf has "
                "the password.",
            )
        found[name] = value
    return tuple(found.items())


def _source(work: ImageBuild, texts: Mapping[str, str], wanted: Requirements) -> tuple[File, ...]:
    """Return the source for the scripts: requirements, ``%files`` and ``.s2i``."""
    folder, found = work.ask.work, dict[str, File]()
    ignored = ignore_files.s2i(context.read_optional(folder, ".s2iignore"))
    if (folder / ".s2i").is_dir():
        wishes = [(".s2i", ".s2i")]
        found |= {one.path: one for one in context.gather(folder, wishes, ignored, work.say)}
    for one in work.ask.source.files:
        content = one.origin if one.data is None else one.data
        if content is not None and not ignored(one.path):
            runs = one.origin is not None and bool(one.origin.stat().st_mode & 0o100)
            found[one.path] = File(one.path, content, runs)
    if _REQUIREMENTS in texts and _REQUIREMENTS in found:
        _check_replaced(work.ask, wanted)
    found |= {path: File(path, text.encode()) for path, text in texts.items()}
    if not found:
        # A folder must exist to be copied.
        found[".s2ikeep"] = File(".s2ikeep", b"")
    return tuple(found[path] for path in sorted(found))


def _check_replaced(ask: Build, wanted: Requirements) -> None:
    """Check that the packages of the cell include those of the user's ``requirements.txt``.

    Raises:
        SpecError: They do not, and would replace the file.
    """
    spec = ask.spec.build
    alone = replace(spec, packages=(), requirements=_REQUIREMENTS)
    hint = "Exclude the file by a line in .s2iignore."
    theirs = None
    with contextlib.suppress(SourceError):  # such as -e, which scripts may support
        theirs = requirements.read(alone, ask.work)
    if theirs:
        if {*theirs.lines, *theirs.constraints} <= {*wanted.lines, *wanted.constraints}:
            return
        if named := spec.requirements:
            path = posixpath.relpath(f"/{_REQUIREMENTS}", posixpath.dirname(f"/{named}"))
            both = f"add a line `-r {path}` to {shown(named)}"
        else:
            both = f"write %requirements={_REQUIREMENTS}"
        hint = f"To install both, {both}. {hint}"
    raise SpecError(
        f"the scripts read one {_REQUIREMENTS}, and both %files and the job's packages have one.",
        hint,
        directive="packages" if spec.packages else "requirements",
    )


def upload(files: Sequence[File]) -> tuple[File, ...]:
    """Arrange a source as source-to-image does: its scripts in a folder of their own."""
    own = {path: f"upload/scripts/{path.rpartition('/')[2]}" for path in _OWN}
    placed = [
        replace(one, path=own[one.path], executable=True)
        if one.path in own
        else replace(one, path=f"upload/src/{one.path}")
        for one in files
    ]
    if all(one.path.startswith("upload/scripts/") for one in placed):
        placed.append(File("upload/src/.s2ikeep", b""))
    return tuple(placed)
