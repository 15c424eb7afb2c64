"""Detect files that hold passwords or keys, by their names, places and first bytes.

Many people can read the files of a job: they are in a ConfigMap or in an image.
"""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

from ciao_kernel.delivery.input.held_file import HeldFile

_NAMES = (
    ".netrc", "_netrc", ".env", ".env.*", ".envrc", ".npmrc", ".pypirc", ".git-credentials",
    ".pgpass", ".my.cnf", ".dockercfg", ".dockerconfigjson", "kubeconfig", "*.kubeconfig",
    "id_rsa", "id_dsa", "id_ecdsa*", "id_ed25519*", "*.key", "*.p12", "*.pfx", "*.jks", "*.ppk",
    "*.kdbx", "*.keytab", "kaggle.json", "credentials.json", "client_secret*.json", "secrets.toml",
    ".s3cfg", ".vault-token", "auth.json",
)  # fmt: skip
_PLACES = (
    ".aws/credentials", ".docker/config.json", ".kube/config", ".config/gcloud/*",
    ".config/gh/hosts.yml", ".config/containers/auth.json", ".huggingface/token",
    ".cache/huggingface/token", ".cache/huggingface/stored_tokens", ".azure/*",
)  # fmt: skip
_PUBLIC = ("*.pub", "*.example", "*.sample", "*.template", "*.dist")
_LARGE = 64 << 10
"""Size in bytes that no key file exceeds."""
_BUNDLES = (".pem", ".crt", ".cer")
"""Suffixes of certificate files; a key may follow the certificates."""
_TEXTS = (
    ".py", ".ipynb", ".md", ".rst", ".sh", ".js", ".ts", ".c", ".h", ".cpp", ".go", ".rs", ".java",
)  # fmt: skip
"""Suffixes of programs and documents, which may show a key as an example or for a test."""
_KEY = re.compile(rb"(?m)^-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----")
_ANNEX = re.compile(r"/\.git/(modules/(?:(?!/\.git/).)+/)?annex/objects/")
"""Folder of git-annex and DataLad for the data behind a repository's links."""
_INDEXES = ("pip.conf", "pip.ini", ".condarc")
"""Files that name package indexes, some with a password: ``https://user:password@host``,
``/t/TOKEN``."""
_PASSWORD = re.compile(rb"://[^/\s]+@|(?<!\S)(?>\S*?://)\S+/t/")


def reason(file: Path, held: HeldFile) -> str:
    """Return why a file seems to be secret, as the end of a sentence; "" if it does not.

    For a link, its target counts as well.

    Args:
        file: Path of the file, as the user names it.
        held: The file.

    Raises:
        OSError: The file cannot be read.
    """
    for path in (str(file), _ANNEX.sub("/", str(held.real))):
        if why := by_name(path):
            return why
    with held.open() as opened:
        if held.size > _LARGE:
            return ""
        data = opened.read(_LARGE)
    suffix = file.suffix.lower()
    if b"PRIVATE KEY-----" in data and (
        suffix in _BUNDLES
        or data.startswith(b"-----BEGIN ")
        or (suffix not in _TEXTS and _KEY.search(data))
    ):
        return "it holds a private key"
    if file.name.lower() in _INDEXES and _PASSWORD.search(data):
        return "it holds the password of a package index"
    if suffix == ".json" and b'"service_account"' in data and b'"private_key"' in data:
        return "it holds the key of a service account"
    return ""


def by_name(file: str | Path) -> str:
    """Return why a file seems to be secret by its name alone; used by completion."""
    path = PurePosixPath(str(file).lower())
    if ".git" in path.parts:
        return "files in a .git folder may hold passwords"
    if any(fnmatchcase(path.name, pattern) for pattern in _PUBLIC):
        return ""
    known = any(fnmatchcase(path.name, pattern) for pattern in _NAMES)
    if known or any(fnmatchcase(str(path), f"*/{place}") for place in _PLACES):
        return "files like this usually hold passwords or keys"
    return ""
