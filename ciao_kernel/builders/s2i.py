"""``%builder=s2i``: an environment that the scripts of a builder image make.

Any image of source-to-image serves, with neither its program nor a daemon: what the program would
do stands in a Dockerfile, which a pod builds. The scripts get the requirements, ``%files`` and the
folder ``.s2i``; the cell is appended to what they made, so that an edited one costs no build.

https://github.com/openshift/source-to-image/blob/master/docs/builder_image.md
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from ciao_kernel.builders import context
from ciao_kernel.builders.executor import Executor, Recipe
from ciao_kernel.builders.images import Bench, Work
from ciao_kernel.builders.kaniko import asked, check, undone
from ciao_kernel.builders.oci import reference
from ciao_kernel.builders.oci.image import Image
from ciao_kernel.builders.oci.layer import File
from ciao_kernel.config import Settings
from ciao_kernel.delivery import ignore_files
from ciao_kernel.delivery.packages import requirements
from ciao_kernel.errors import SourceError, SpecError
from ciao_kernel.model import Artifact
from ciao_kernel.plugins import Build, Emit
from ciao_kernel.redaction import password

SCRIPTS = "/usr/libexec/s2i"
_OWN = (".s2i/bin/assemble", ".s2i/bin/run", ".s2i/bin/save-artifacts")
_USER = re.compile(r"[A-Za-z0-9_.-]+(:[A-Za-z0-9_.-]+)?")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_ENVIRONMENT = ".s2i/environment"


class S2IBuilder:
    """``%builder=s2i``.

    Args:
        settings: Registry, its authority, the executor's image.
    """

    name = "s2i"
    backend = "kubernetes"
    brings = frozenset({"packages", "requirements", "s2i_builder", "pip_secret"})

    def __init__(self, settings: Settings) -> None:
        self._bench = Bench(settings)
        self._executor = Executor(self._bench)

    async def build(self, ask: Build, emit: Emit) -> Artifact:
        """Let the scripts make the environment unless it is there, and append the cell.

        Raises:
            SpecError: No builder image or no registry is named.
            SourceError: A file cannot be read, or a script failed.
            RegistryFault: A registry says no.
            ClusterFault: The cluster lets no such pod run, or has ended it.
        """
        spec = ask.spec.build
        builder = spec.s2i_builder or self._bench.settings.s2i_builder
        if not builder:
            raise SpecError(
                "%builder=s2i needs a builder image.",
                "Name one: %s2iBuilder=registry.example.com/s2i/python:3.13, or "
                "`%ciao config s2iBuilder=…`.",
                directive="builder",
            )
        work = await self._bench.work(ask, emit)
        wanted = requirements.read(spec, ask.work)
        check(wanted)
        named = reference.parse(builder)
        if not (named.tag or named.digest):
            named = replace(named, tag="latest")
        image = await work.inspect(named)
        known = scripts(image, str(named))
        texts = {name.rpartition("/")[2]: text for name, text in asked(wanted).items()}
        if "constraints.txt" in texts:  # scripts know of one file alone
            texts["requirements.txt"] += "-c constraints.txt\n"
        if wanted.index and wanted.packages:
            texts["requirements.txt"] = f"--index-url {wanted.index}\n{texts['requirements.txt']}"
        files = await work.thread(lambda: _source(work, texts))
        own = frozenset(one.path for one in files)
        variables = environment(
            context.ignores(ask.work, _ENVIRONMENT) if _ENVIRONMENT in own else ""
        )
        text = dockerfile(str(named.at(image.digest)), str(named), known, own, variables)
        label = wanted.label or "its source"
        recipe = Recipe(text, upload(files), why=f"{label}, by {named.name}")
        made = await self._executor.image(work, recipe)
        if made is None:
            return undone(work)
        work.say(f"the environment is {made}")
        return await work.deliver(made)


@dataclass(frozen=True, slots=True)
class Scripts:
    """What the labels of a builder image say.

    Args:
        place: Folder of its scripts.
        user: Who runs them.
        destination: Folder that the source is laid into.
    """

    place: str = SCRIPTS
    user: str = "1001"
    destination: str = "/tmp"


def scripts(image: Image, name: str) -> Scripts:
    """Read the labels.

    Args:
        image: Of the builder.
        name: For messages.

    Raises:
        SourceError: Its scripts are not in the image.
    """
    labels = image.labels
    url = labels.get("io.openshift.s2i.scripts-url") or labels.get("io.s2i.scripts-url")
    url = url or f"image://{SCRIPTS}"
    place = url.removeprefix("image://")
    if place == url or not re.fullmatch(r"/[\w./-]+", place):
        raise SourceError(
            f"the scripts of {name} are at {url[:200]}, and only those in the image can be used.",
            "Name a builder image with scripts of its own (image://…).",
        )
    user = labels.get("io.openshift.s2i.assemble-user") or "1001"
    destination = labels.get("io.openshift.s2i.destination") or "/tmp"
    if not _USER.fullmatch(user) or not re.fullmatch(r"/[\w./-]*", destination):
        raise SourceError(f"the labels of {name} name no user or no folder that there could be.")
    return Scripts(place.rstrip("/"), user, destination.rstrip("/"))


def dockerfile(
    builder: str,
    name: str,
    known: Scripts,
    source: frozenset[str],
    variables: Sequence[tuple[str, str]] = (),
) -> str:
    """Write what source-to-image would do.

    Args:
        builder: The image, by its digest.
        name: The same as the user wrote it.
        known: Its scripts.
        source: Paths of the source's files: it may bring scripts of its own.
        variables: For the scripts and the program.
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
        # The executor gives a user whom nobody knows a group of his own, and docker group 0, which
        # the folders of builder images belong to.
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
    """Read ``.s2i/environment``: ``NAME=value`` on each line; others are passed over.

    Raises:
        SourceError: A name is none, or a value has a password.
    """
    found: dict[str, str] = {}
    for number, line in enumerate(text.split("\n"), 1):
        name, equals, value = (part.strip() for part in line.partition("="))
        if not equals or not name or name.startswith("#"):
            continue
        if not _NAME.fullmatch(name):
            raise SourceError(f"{_ENVIRONMENT}, line {number}: {name[:80]!r} is no variable.")
        if password(value):
            raise SourceError(
                f"{_ENVIRONMENT}, line {number} names a password or a token, which the image would "
                "keep.",
                "Name the address alone: %pipSecret=NAME names a Secret whose pip.conf has the "
                "password.",
            )
        found[name] = value
    return tuple(found.items())


def _source(work: Work, texts: Mapping[str, str]) -> tuple[File, ...]:
    """The source for the scripts: requirements, ``%files`` and ``.s2i``."""
    folder, found = work.ask.work, dict[str, File]()
    ignored = ignore_files.s2i(context.ignores(folder, ".s2iignore"))
    if (folder / ".s2i").is_dir():
        wishes = [(".s2i", ".s2i")]
        found |= {one.path: one for one in context.gather(folder, wishes, ignored, work.say)}
    for one in work.ask.source.files:
        content = one.origin if one.data is None else one.data
        if content is not None and not ignored(one.path):
            runs = one.origin is not None and bool(one.origin.stat().st_mode & 0o100)
            found[one.path] = File(one.path, content, runs)
    found |= {path: File(path, text.encode()) for path, text in texts.items()}
    if not found:
        # A folder has to be there to be copied.
        found[".s2ikeep"] = File(".s2ikeep", b"")
    return tuple(found[path] for path in sorted(found))


def upload(files: Sequence[File]) -> tuple[File, ...]:
    """Lay a source out as source-to-image does: its scripts apart from the rest."""
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
