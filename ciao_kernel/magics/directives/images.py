"""Directives for the environment of the replicas: packages, and images that are built."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ciao_kernel.magics import value_types
from ciao_kernel.magics.directive import Directive
from ciao_kernel.magics.directives.cluster import ImageName, Name
from ciao_kernel.magics.shell_words import one_word, quote, words

_SYSTEM = re.compile(r"[a-z0-9][a-z0-9+.-]+(:[a-z0-9]+)?(=[A-Za-z0-9.+~:-]+)?")
_ADDRESS = re.compile(r"(https?|file)://[^\s@]+")


@dataclass(frozen=True, slots=True)
class Address:
    """The address of a package index, without a password, because others can read a cell's text.

    The program keeps its directives as comments, and it is part of an image that others read.
    """

    expected: str = (
        "the address of a package index, such as https://pypi.example.com/simple (a password "
        "belongs in ~/.netrc or in pip's configuration, never in a directive)"
    )

    def parse(self, text: str) -> str:
        """Check the form."""
        word = one_word(text, self.expected)
        if not _ADDRESS.fullmatch(word):
            raise ValueError(self.expected)
        return word

    def render(self, value: str) -> str:
        """Quote the word."""
        return quote(value)


@dataclass(frozen=True, slots=True)
class Repository:
    """A repository in a registry, to which images are pushed.

    A host alone has the form of an image of Docker Hub, and the images would be pushed there. A tag
    would not be used: builders name images by digests of their contents.
    """

    expected: str = "a repository such as registry.example.com/team/cells"

    def parse(self, text: str) -> str:
        """Check the form, that a path follows a host, and that there is no tag."""
        word = ImageName(self.expected).parse(text)
        if "/" not in word and (word == "localhost" or {".", ":"}.intersection(word)):
            raise ValueError("HOST/PATH, a path after the host: registry.example.com/team/cells")
        if "@" in word or ":" in word.rpartition("/")[2]:
            raise ValueError(
                "a repository without a tag or a digest: registry.example.com/team/cells"
            )
        return word

    def render(self, value: str) -> str:
        """Return the value unchanged."""
        return value


@dataclass(frozen=True, slots=True)
class SystemPackages:
    """Packages of a distribution, with or without versions; they become part of a command."""

    expected: str = "packages of the image's distribution, such as libgomp1 or git=1:2.39.5-0"

    def parse(self, text: str) -> tuple[str, ...]:
        """Check each word."""
        found = words(text)
        if not found or not all(_SYSTEM.fullmatch(word) for word in found):
            raise ValueError(self.expected)
        return found

    def render(self, value: tuple[str, ...]) -> str:
        """Join the words with spaces."""
        return " ".join(value)


def directives() -> list[Directive]:
    """Return the entries of the table, in the order of display."""
    return [
        Directive(
            "packages",
            "build.packages",
            value_types.Words("requirements for pip, such as pandas or scikit-learn==1.7.2"),
            "Python packages that the code needs and that its image or environment may lack.",
            "%packages=pandas scikit-learn==1.7.2",
            repeatable=True,
        ),
        Directive(
            "requirements",
            "build.requirements",
            value_types.Word(
                "a requirements file next to your code", value_types.Suggestions.FILES
            ),
            "Requirements file that lists Python packages, as for pip install -r.",
            "%requirements=requirements.txt",
        ),
        Directive(
            "pipIndex",
            "build.pip_index",
            Address(),
            "Package index for pip, instead of the index in pip's configuration.",
            "%pipIndex=https://pypi.example.com/simple",
        ),
        Directive(
            "base",
            "build.base",
            ImageName(),
            "Base image for a builder; without it, the job's image.",
            "%base=python:3.13-slim",
        ),
        Directive(
            "registry",
            "build.registry",
            Repository(),
            "Repository to which a builder pushes its image.",
            "%registry=registry.example.com/team/cells",
        ),
        Directive(
            "apt",
            "build.apt",
            SystemPackages(),
            "Debian packages to install in the image; a pod builds it.",
            "%apt=libgomp1 git",
            repeatable=True,
        ),
        Directive(
            "condaEnv",
            "build.conda_env",
            value_types.Word(
                "a file such as environment.yml next to your code",
                value_types.Suggestions.FILES,
            ),
            "Conda environment to install in an image that has conda; a pod builds it.",
            "%condaEnv=environment.yml",
        ),
        Directive(
            "dockerfile",
            "build.dockerfile",
            value_types.Word("a Dockerfile next to your code", value_types.Suggestions.FILES),
            "Dockerfile of the environment; a pod builds it, and the program is added on top.",
            "%dockerfile=Dockerfile",
        ),
        Directive(
            "s2iBuilder",
            "build.s2i_builder",
            ImageName(),
            "Builder image of source-to-image; its scripts create the environment.",
            "%s2iBuilder=registry.example.com/s2i/python:3.13",
        ),
        Directive(
            "pushSecret",
            "build.push_secret",
            Name(),
            "Secret with registry passwords, for the kernel and for pods that build an image, or "
            "push files of %output to a registry.",
            "%pushSecret=registry-push",
        ),
        Directive(
            "pipSecret",
            "build.pip_secret",
            Name(),
            "Secret with a pip.conf for the build pod: a private index and its password.",
            "%pipSecret=private-index",
        ),
    ]
