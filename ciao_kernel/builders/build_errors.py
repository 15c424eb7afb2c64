"""Explains the end of a build in a pod: one sentence, a hint, the last lines."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from ciao_kernel.builders.dockerfile import instructions
from ciao_kernel.builders.dockerfile_rewrite import original_line
from ciao_kernel.builders.pip_errors import NO_MATCH
from ciao_kernel.delivery.packages.pip import AWAY
from ciao_kernel.errors import CiaoError, ClusterFault, RegistryFault, SourceError
from ciao_kernel.oci.reference import Reference
from ciao_kernel.plugins import PodResult

_SHOWN = 20
_NO_CONDA = 64
_KILLED = 137
"""Exit code of a shell whose command got SIGKILL; the executor itself may continue."""
_LOG = re.compile(r"time=\S+ level=\w+ msg=(\"(?:\\.|[^\"\\])*\"|\S*)")
_COMMAND = re.compile(r"msg=\"?RUN (.+)")

_DENIED = r"\b40[13]\b|UNAUTHORIZED|authentication required|DENIED"
# Pattern for the executor's last error, its meaning, a hint. {0} is the registry, {1} a part of the
# error, {2} the action that failed, {3} the Secret with the passwords.
_REGISTRY = (
    (r"\b429\b|TOOMANYREQUESTS", "the registry {0} accepts no more requests for now.",
     "Try again in some minutes. Users who sign in may have a higher limit: "
     "%pushSecret=NAME names a Secret with the registry's password."),
    (_DENIED,
     "the registry {0} does not let the build {2}: its pod has no password with that right.",
     "%pushSecret=NAME names a Secret (`kubectl create secret docker-registry`) with the right to "
     "{2}."),
    (r"405 Method Not Allowed", "the registry {0} accepts no images: it is read-only.",
     "Name another one: %registry=…."),
    (r"(?i)no space left on device|\bErr:28\b", "the registry {0} has no space left.",
     "Remove images there, or name another one: %registry=…."),
    (r"server gave HTTP response to HTTPS client|first record does not look like a TLS handshake",
     "the registry {0} speaks http.",
     "If that is intended: `%ciao config plainRegistries+={0}`."),
    (r"x509|certificate signed by unknown authority",
     "the certificate of the registry {0} is not trusted by the build.",
     "`%ciao config registryAuthority=FILE` names the authority that signed it."),
    (r"lookup (\S+) .*|no such host",
     "the build's pod cannot resolve the name of the registry: {1}.",
     "Nodes and pods must be able to resolve the registry's name as you wrote it."),
    (r"connection refused|connection reset|broken pipe|i/o timeout|no route to host|EOF",
     "the registry {0} does not answer the build.", "Is it up, and can pods reach it?"),
)  # fmt: skip
_WITH_SECRET = (
    "The Secret {3} needs an entry with the right to {2}. It must name the registry's host alone: "
    "the build does not find one with the path of an organization."
)
_PUSHING = re.compile(r"push permission|error pushing")
_HOST = (re.compile(r"https?://([^/\s\"]+)/v2/"), re.compile(r"https?://([^/\s\"]+)"))
_BASE = re.compile(r"MANIFEST_UNKNOWN|NAME_UNKNOWN|manifest unknown")
_SYNTAX = re.compile(r"dockerfile parse error on line (\d+): (.+)")
_MISSING = re.compile(r"lstat /kaniko/buildcontext/(\S+?): no such file")
_EXIT = re.compile(r"waiting for process to exit: exit status (\d+)")
_RETRIED = re.compile(r"^.*\bRetry\(total=[1-9].*$", re.MULTILINE)
"""A request of pip that has tries left, and may be answered."""
_UNTRUSTED = re.compile(
    r"certificate[ _]verify[ _]failed|SSLCertVerificationError|confirming the ssl certificate",
    re.IGNORECASE,
)
_PIP = re.compile(r"\bpip[\d.]*\b|^(?:Collecting|Looking in indexes)\b", re.MULTILINE)
_ASKS = re.compile(r"EOFError|User for \S+:|40[13] (?:Client )?Error|Credentials not correct")
_NO_DEB = re.compile(r"Unable to locate package (\S+)")
_NO_REPOSITORY = re.compile(
    r"^([EW]): .*(?:Temporary failure resolving|Could not (?:connect|resolve)|"
    r"Some index files failed to download|Failed to fetch)",
    re.MULTILINE,
)
"""How apt says that it cannot download; it continues after a warning (W)."""
_FULL = re.compile(r"no space left on device", re.IGNORECASE)


def fault(
    end: PodResult, text: str, name: str, target: Reference, namespace: str, push_secret: str = ""
) -> CiaoError:
    """Return the error of a failed build.

    Args:
        end: End of its pod.
        text: Text of the Dockerfile, as the pod received it.
        name: Name of its file; "" if the user has none.
        target: Repository that the image is for.
        namespace: Namespace of the pod.
        push_secret: The Secret with the passwords of registries; "" if there is none.
    """
    found = _cluster_error(end, namespace) or _build_error(end, text, name, target, push_secret)
    shown = [plain(line) for line in end.last if line.strip()][-_SHOWN:]
    if shown:
        found.hint = "\n".join([found.hint, "", "The last lines of the build:", *shown]).strip("\n")
    return found


def plain(line: str) -> str:
    """Return the message of a line of the executor's log; the line of a command stays as it is."""
    if not (match := _LOG.match(line)):
        return line
    try:
        return str(json.loads(match[1])) if match[1].startswith('"') else match[1]
    except ValueError:
        return match[1].strip('"')


def lost(target: Reference, tag: str) -> CiaoError:
    """Return the error of a build that reported success but left no image."""
    return RegistryFault(
        f"the build succeeded, but there is no {target.name}:{tag}.",
        "Does somebody remove images there? Try again.",
    )


def _cluster_error(end: PodResult, namespace: str) -> CiaoError | None:
    """Return the error if the cluster ended the pod, independent of the log."""
    if end.reason == "OOMKilled":
        return _memory()
    if end.reason == "DeadlineExceeded":
        return ClusterFault(
            "the build took longer than allowed.",
            "`%ciao config buildDeadline=SECONDS` gives it more time.",
        )
    why = end.message.strip().rstrip(".") or end.reason or "no reason given"
    if end.reason == "Deleted":
        return ClusterFault(
            f"the pod that built the image was removed from {namespace}: {why}.",
            "Try again.",
        )
    if end.reason or end.code is None:  # evicted, or the node was shut down or had no room
        return ClusterFault(
            f"the pod that built the image was ended in {namespace}: {why}.",
            "A node needs room for the unpacked image. Try again, or use a smaller base."
            if end.reason == "Evicted"
            else "Try again.",
        )
    return None


def _memory() -> CiaoError:
    return ClusterFault(
        "the build was killed because it used more memory than allowed.",
        "`%ciao config buildMemory=8Gi` gives it more.",
    )


def _build_error(
    end: PodResult, text: str, name: str, target: Reference, push_secret: str
) -> CiaoError:
    """Return the error that the executor's log describes."""
    lines = [line.rstrip() for line in (*end.first, *end.last) if line.strip()]
    message = next((line for line in reversed(lines) if line.startswith("error ")), "")
    message = message or next((line for line in lines if line.startswith("Error: ")), "")
    if match := _SYNTAX.search(message):
        line, wrong = original_line(text, int(match[1])), match[2].removesuffix('"')
        return SourceError(f"{name or 'the Dockerfile'}, line {line}: {wrong}.")
    if match := _MISSING.search(message):
        return SourceError(
            f"{name or 'the Dockerfile'} copies {match[1]}, which is not in the build's files.",
            "Does .dockerignore leave it out?",
        )
    if match := _EXIT.search(message):
        return _command_error(end.last, text, name, int(match[1]))
    if _BASE.search(message):
        return RegistryFault(
            "a base image of the build does not exist, or the build may not read it.",
            "%pushSecret=NAME names a Secret with its registry's password.",
        )
    pushing = _PUSHING.search(message)
    if _FULL.search(message or "\n".join(lines)) and not pushing:
        return _full()
    words = target.registry if pushing else _host(message), "push" if pushing else "read its image"
    for pattern, sentence, hint in _REGISTRY:
        if match := re.search(pattern, message):
            part = match[1] if match.lastindex and match[1] else match[0]
            if push_secret and pattern is _DENIED:
                hint = _WITH_SECRET
            parts = words[0], part, words[1], push_secret
            return RegistryFault(sentence.format(*parts), hint.format(*parts))
    if wrong := message.partition("parsing dockerfile")[2].partition(": ")[2].removesuffix('"'):
        return SourceError(f"{name or 'the Dockerfile'}: {wrong}.")
    why = message.removeprefix("Error: ").removeprefix("error ").strip()[:400].rstrip(".")
    ended = f"with exit code {end.code}" if end.code is not None else "at once"
    return ClusterFault(f"the build ended {ended}{f': {why}' if why else ''}.")


def _host(message: str) -> str:
    """Return the registry that an error names; its first address may be a token server's."""
    found = next((match for pattern in _HOST if (match := pattern.search(message))), None)
    return found[1] if found else "of the base"


def _full() -> CiaoError:
    return ClusterFault("the node has no space left for the build.", "Use a smaller base.")


def _command_error(lines: Sequence[str], text: str, name: str, code: int) -> CiaoError:
    """Return the error of a command that failed, explained by its output."""
    command, line, wrote = _command(lines, text)
    if code == _NO_CONDA and "ciao: there is no conda" in wrote:
        return SourceError(
            "the base image has no conda, which %condaEnv needs.",
            "Name an image with conda: %base=…, such as a miniforge image.",
        )
    if match := NO_MATCH.search(wrote):
        return _no_package(match[1].strip(), wrote)
    if _ASKS.search(wrote) and _PIP.search(f"{command}\n{wrote}"):
        return SourceError(
            "the package index requires authentication.",
            "%pipSecret=NAME names a Secret whose pip.conf has address, user and password; with "
            "%builder=s2i, leave %pipIndex out.",
        )
    match = _NO_DEB.search(wrote)
    failures = {one[1] for one in _NO_REPOSITORY.finditer(wrote)}
    if "E" in failures or (failures and match):
        return SourceError(
            "apt cannot download packages in the build: its pod cannot reach a package repository "
            "of the base image, or the repository has changed.",
            "Name a base whose /etc/apt/sources.list has a mirror that pods can reach.",
        )
    if match:
        return SourceError(
            f"there is no Debian package {match[1]} for the base image.", "Is the name right?"
        )
    if _FULL.search(wrote):
        return _full()
    if code == _KILLED:
        return _memory()
    place = f"{name}, line {line}: " if name and line else ""
    shown = f"`{command[:200]}`" if command else "a command of the build"
    return SourceError(f"{place}{shown} ended with exit code {code}.")


def _no_package(name: str, wrote: str) -> SourceError:
    """Return the error for a package that pip does not find."""
    tried = _RETRIED.sub("", wrote)
    if _UNTRUSTED.search(tried):
        why = ", because it does not trust the certificate of the package index."
        hint = (
            "The base image needs the certificate of the authority that signed it; the variable "
            "PIP_CERT of the image names its file."
        )
    elif AWAY.search(tried):
        why = ", because its pod cannot reach the package index."
        hint = (
            "Pods of the cluster need an index that they can reach: %pipIndex=URL, or a Secret "
            "with a pip.conf: %pipSecret=NAME."
        )
    else:
        why, hint = ".", "Is the name right? Name a version that exists."
    return SourceError(f"pip finds no {name} in the build{why}", hint)


def _command(lines: Sequence[str], text: str) -> tuple[str, int, str]:
    """Return the last command that was started, its line, and its output."""
    begun, since = "", 0
    for number, line in enumerate(lines):
        if match := _COMMAND.search(line.rstrip()):
            begun, since = match[1].removesuffix('"').replace('\\"', '"').strip(), number + 1
    wrote = "\n".join(line.rstrip() for line in lines[since:])
    plain = " ".join(begun.split())
    for one in instructions(text):
        if plain and one.name == "RUN" and " ".join(one.rest.split()).startswith(plain[:60]):
            return begun, original_line(text, one.line), wrote
    return begun, 0, wrote
