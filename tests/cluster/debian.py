"""Trees of files made from Debian's and PyPI's packages: the node's root and images' layers."""

import os
import shutil
import stat
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.cluster import pins
from tests.cluster.commands import run
from tests.cluster.errors import ClusterError
from tests.cluster.store import digest, made, make

_OFFLINE = "Debian's packages must be reachable; the suite is set in tests/cluster/pins.py"
_RUBBISH = (
    "var/cache/apt", "var/lib/apt/lists", "var/log", "usr/share/doc", "usr/share/man",
    "usr/share/locale", "usr/share/info", "usr/share/lintian", "run", "tmp", "root/.cache",
)  # fmt: skip


@dataclass(frozen=True)
class Layer:
    """A change to the trees below it, found out by making it.

    Args:
        name: in the cache.
        below: the layers it stands on, nearest first; empty for the first of all.
        packages: Debian's, installed without what they merely recommend.
        pip: PyPI's requirements, installed over Debian's Python.
        files: content of further files, by path; content that is a script is executable.
        copies: files of this machine, with the folder in the tree that gets each.
        shell: commands that run last, as root in the tree.
        suite: of Debian, for the first of all.
    """

    name: str
    below: tuple["Layer", ...] = ()
    packages: tuple[str, ...] = ()
    pip: tuple[str, ...] = ()
    files: tuple[tuple[str, str], ...] = ()
    copies: tuple[tuple[Path, str], ...] = field(default=(), repr=False)
    shell: str = ""
    suite: str = field(default=pins.DEBIAN, repr=False)

    @property
    def key(self) -> str:
        """The digest of all that decides its content."""
        return digest(
            self.suite, [layer.key for layer in self.below], self.packages, self.pip,
            self.files, self.shell, _RUBBISH, *(part for pair in self.copies for part in pair),
        )  # fmt: skip

    @property
    def stack(self) -> tuple["Layer", ...]:
        """It and all below it, uppermost first."""
        return (self, *self.below)

    def ready(self) -> bool:
        """Tell whether it is in the cache."""
        return made(f"layer-{self.name}", self.key) is not None

    def folder(self, log: Path | None = None) -> Path:
        """Return its tree, made unless it is in the cache. Layers below must be there."""
        return make(f"layer-{self.name}", self.key, lambda part: self.build(part, log))

    def build(self, part: Path, log: Path | None = None) -> None:
        """Make its tree in `part`, outside the cache."""
        part.mkdir(parents=True, exist_ok=True)
        if not self.below:
            _debootstrap(part, self.packages, self.suite, log)
            return
        # An overlay whose upper folder is the new layer: what changes is what the layer holds.
        work, merged = part.with_suffix(".work"), part.with_suffix(".merged")
        for folder in (work, merged):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
        lower = ":".join(str(layer.folder()) for layer in self.below)
        script = work.with_suffix(".sh")
        script.write_text(_script(self, lower, part, work, merged))
        try:
            # A mount namespace of its own: no mount of this outlives it, however it ends.
            run(
                ["unshare", "--mount", "--propagation", "private", "sh", "-e", str(script)],
                log=log, env=_environment(), hint=_OFFLINE,
            )  # fmt: skip
        finally:
            script.unlink()
            for folder in (work, merged):
                shutil.rmtree(folder, ignore_errors=True)
        for path in _RUBBISH:
            _empty(part / path)
        for path, content in self.files:
            target = part / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(content)
            target.chmod(0o755 if content.startswith("#!") else 0o644)


def _debootstrap(part: Path, packages: Sequence[str], suite: str, log: Path | None) -> None:
    """Make the first tree. debootstrap itself is unpacked beside it, not installed."""
    tools = part.with_suffix(".tools")
    shutil.rmtree(tools, ignore_errors=True)
    tools.mkdir()
    run(
        ["apt-get", "download", "debootstrap", "debian-archive-keyring"],
        cwd=tools,
        log=log,
        hint="run `apt-get update` first, if it names no candidate",
    )
    for package in sorted(tools.glob("*.deb")):
        run(["dpkg-deb", "-x", package, tools], log=log)
    scripts = tools / "usr/share/debootstrap"
    if not (scripts / "scripts" / suite).exists():
        raise ClusterError(f"this machine's debootstrap does not know Debian {suite}")
    try:
        # Its own mount of /proc now and then stays: in this namespace it cannot get into the layer.
        run(
            ["unshare", "--mount", "--propagation", "private",
             tools / "usr/sbin/debootstrap", "--variant=minbase",
             f"--keyring={tools}/usr/share/keyrings/debian-archive-keyring.gpg",
             f"--include={','.join(packages)}", suite, part, pins.MIRROR],
            log=log, env=os.environ | {"DEBOOTSTRAP_DIR": str(scripts)}, hint=_OFFLINE,
        )  # fmt: skip
    finally:
        shutil.rmtree(tools)
    for path in _RUBBISH:
        _empty(part / path)
    part.chmod(0o755)


_AUTHORITIES = ("PIP_CERT", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE")
_INSIDE = "DEBIAN_FRONTEND=noninteractive " + " ".join(
    f"{name}=/run/host/authorities.crt" for name in _AUTHORITIES
)


def _script(layer: Layer, lower: str, part: Path, work: Path, merged: Path) -> str:
    """Return the shell script that makes a layer, for a mount namespace of its own.

    What belongs to this machine (resolver, certificates, settings of apt and pip) is mounted
    and passed on, so that none of it gets into a layer.
    """
    lines = [
        f"mount -t overlay overlay -o lowerdir={lower},upperdir={part},workdir={work} {merged}",
        f"mount -t proc proc {merged}/proc",
        f"mount -t tmpfs tmpfs {merged}/run && mkdir -p {merged}/run/host/apt",
        f"cp -rL /etc/resolv.conf {merged}/run/host/",
        f"cp -rL /etc/apt/apt.conf.d {merged}/run/host/apt/",
        f"if [ -e /etc/pip.conf ]; then cp -L /etc/pip.conf {merged}/run/host/; fi",
        f"mount --bind {merged}/run/host/resolv.conf {merged}/etc/resolv.conf",
        # A copy, because an upgrade of ca-certificates in the tree writes that folder anew; and the
        # programs read another copy, because what it writes lacks this machine's own authorities.
        f"cp -rL /etc/ssl/certs {merged}/run/host/certs",
        f"cp -L /etc/ssl/certs/ca-certificates.crt {merged}/run/host/authorities.crt",
        f"mount --bind {merged}/run/host/certs {merged}/etc/ssl/certs",
        "inside() { chroot " + str(merged) + f' /usr/bin/env {_INSIDE} "$@"; }}',
    ]
    if layer.packages:
        apt = "-o Dir::Etc::Parts=/run/host/apt/apt.conf.d -o Dpkg::Options::=--force-confnew"
        lines += [
            # Packages that bring daemons would start them: nothing may start in a tree.
            f"printf '#!/bin/sh\\nexit 101\\n' > {merged}/usr/sbin/policy-rc.d",
            f"chmod +x {merged}/usr/sbin/policy-rc.d",
            f"inside apt-get {apt} update -qq",
            f"inside apt-get {apt} install -y -qq --no-install-recommends "
            + " ".join(layer.packages),
            f"rm {merged}/usr/sbin/policy-rc.d",
        ]
    if layer.pip:
        lines.append(
            "PIP_CONFIG_FILE=/run/host/pip.conf PIP_BREAK_SYSTEM_PACKAGES=1 "
            "PIP_ROOT_USER_ACTION=ignore "
            "inside python3 -m pip install --no-cache-dir --no-compile --progress-bar=off "
            + " ".join(layer.pip)
        )
    for source, target in layer.copies:
        lines.append(f"mkdir -p {merged}/{target} && cp {source} {merged}/{target}")
    if layer.shell:
        settings = 'Dir::Etc::Parts "/run/host/apt/apt.conf.d"; Dpkg::Options "--force-confnew";'
        lines += [
            f"echo {_quoted(settings)} > {merged}/run/host/apt/settings",
            "PIP_CONFIG_FILE=/run/host/pip.conf APT_CONFIG=/run/host/apt/settings "
            f"inside sh -ec {_quoted(layer.shell)}",
        ]
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def _environment() -> dict[str, str]:
    """Return this machine's proxies and indexes, and nothing else of its environment."""
    kept = ("http_proxy", "https_proxy", "no_proxy", "ssl_cert_file", "ssl_cert_dir")
    return {
        name: value
        for name, value in os.environ.items()
        if name.lower() in kept or name.startswith("PIP_")
    } | {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root"}


def _empty(folder: Path) -> None:
    """Remove what is in a folder, and keep the folder."""
    if not folder.is_dir() or folder.is_symlink():
        return
    for item in folder.iterdir():
        if stat.S_ISDIR(item.lstat().st_mode):
            shutil.rmtree(item)
        else:
            item.unlink()
