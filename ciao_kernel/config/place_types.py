"""Value types of settings that name places of files: folders, volumes, claims and buckets."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ciao_kernel.config.setting_types import Words
from ciao_kernel.errors import UsageError
from ciao_kernel.magics.directives.surviving import CheckpointPlace
from ciao_kernel.magics.directives.volumes import Volumes
from ciao_kernel.magics.shell_words import quote, words
from ciao_kernel.model import Volume
from ciao_kernel.user_path import expanded

_NEXT_PAIR = re.compile(",[^,]*=[/~]")
"""A comma and the next pair, where pairs are separated by spaces."""


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder; ``~`` is the user's home."""

    expected: str = "the path of a folder"

    def parse(self, text: str) -> Path:
        """Return the absolute path."""
        try:
            path = expanded(text.strip())
        except UsageError:
            raise ValueError(f"{self.expected} (no user has that name)") from None
        if not text.strip() or not text.isprintable():
            raise ValueError(self.expected)
        return path.absolute()

    def render(self, value: Path) -> str:
        """Return the path as text."""
        return str(value)


@dataclass(frozen=True, slots=True)
class VolumeFolders:
    """A folder of this machine for each volume."""

    expected: str = (
        "CLAIM=/FOLDER, separated by spaces and quoted as in a shell; in a file also a table "
        '{CLAIM = "/FOLDER"}'
    )

    def parse(self, text: str) -> Mapping[str, str]:
        """Split the text into pairs; a folder is absolute or below the home folder."""
        pairs = [word.partition("=") for word in words(text)]
        if not all(name and folder.startswith(("/", "~")) for name, _, folder in pairs):
            raise ValueError(self.expected)
        if any(_NEXT_PAIR.search(folder) for _, _, folder in pairs):
            raise ValueError(self.expected)
        return {name: folder for name, _, folder in pairs}

    def parse_toml(self, value: object) -> Mapping[str, str]:
        """Take a table of texts."""
        if not isinstance(value, Mapping):
            raise ValueError(self.expected)
        folders = {str(name): folder for name, folder in value.items()}
        if not all(isinstance(folder, str) for folder in folders.values()):
            raise ValueError(self.expected)
        # Equal only if each name and each folder can be written as text.
        if folders != self.parse(self.render(folders)):
            raise ValueError(self.expected)
        return folders

    def render(self, value: Mapping[str, str]) -> str:
        """Return the pairs as text."""
        return " ".join(quote(f"{name}={folder}") for name, folder in value.items())


@dataclass(frozen=True, slots=True)
class JobVolumes:
    """Volumes as ``%volume`` has them, or nothing."""

    expected: str = (
        f"{Volumes().expected}; separated by spaces and quoted as in a shell; in a file also an "
        'array ["CLAIM:WHERE", "tmp:WHERE"]'
    )

    def parse(self, text: str) -> tuple[Volume, ...]:
        """Read each word; no two volumes may be in the same folder."""
        return Volumes().parse(text) if words(text) else ()

    def parse_toml(self, value: object) -> tuple[Volume, ...]:
        """Take an array of texts, each one volume."""
        if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
            raise ValueError(self.expected)
        return self.parse(" ".join(map(quote, value)))

    def render(self, value: tuple[Volume, ...]) -> str:
        """Return the volumes as text."""
        return Volumes().render(value)


@dataclass(frozen=True, slots=True)
class CheckpointSetting:
    """A claim with an optional folder in it, a folder of this machine, or nothing."""

    expected: str = "CLAIM, CLAIM/FOLDER, /FOLDER or ~/FOLDER of this machine, or nothing"

    def parse(self, text: str) -> str:
        """Return the place as it is written, after a check of its form."""
        text = text.strip()
        if text.startswith(("/", "~")):
            if not text.isprintable():
                raise ValueError(self.expected)
            return text
        try:
            CheckpointPlace().parse(text)
        except ValueError:
            raise ValueError(self.expected) from None
        return text

    def render(self, value: str) -> str:
        """Return the place unchanged."""
        return value


@dataclass(frozen=True, slots=True)
class ClaimSetting:
    """A claim with an optional folder in it, or nothing."""

    expected: str = "CLAIM, CLAIM/FOLDER, or nothing"

    def parse(self, text: str) -> str:
        """Return the place as it is written, after a check of its form."""
        try:
            return str(CheckpointPlace().parse(text))
        except ValueError:
            raise ValueError(self.expected) from None

    def render(self, value: str) -> str:
        """Return the place unchanged."""
        return value


@dataclass(frozen=True, slots=True)
class BucketAddress:
    """A bucket with an optional prefix, or nothing."""

    expected: str = "s3://BUCKET/PREFIX, or https://HOST/BUCKET/PREFIX of another service than AWS"

    def parse(self, text: str) -> str:
        """Return the address without a slash at its end."""
        text = text.strip().rstrip("/")
        scheme, _, rest = text.partition("://")
        parts = rest.split("/")
        least = {"s3": 1, "https": 2, "http": 2}.get(scheme, 0)
        strange = not rest.isascii() or any(one in rest for one in "?#@%\\ ")
        dots = any(part in ("", ".", "..") for part in parts)
        if text and (strange or dots or not rest.isprintable() or not 0 < least <= len(parts)):
            raise ValueError(self.expected)
        return text

    def render(self, value: str) -> str:
        """Return the address unchanged."""
        return value


@dataclass(frozen=True)
class Folders(Words):
    """Absolute paths of folders."""

    expected: str = (
        'absolute paths, separated by spaces; in a file also an array ["/PATH", "/PATH"]'
    )

    @staticmethod
    def accepts(word: str) -> bool:
        """Refuse relative paths, those that lead up, and several with commas between them."""
        whole = ",/" not in word and word.isprintable()
        return word.startswith("/") and ".." not in word.split("/") and whole
