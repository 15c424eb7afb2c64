"""The directives that say what the replicas need beside the cell's code."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ciao_kernel.magics import value_types
from ciao_kernel.magics.cluster import ImageName, Name
from ciao_kernel.magics.directive import Directive
from ciao_kernel.magics.shell_words import one_word, quote, words

_SYSTEM = re.compile(r"[a-z0-9][a-z0-9+.-]+(:[a-z0-9]+)?(=[A-Za-z0-9.+~:-]+)?")
_ADDRESS = re.compile(r"(https?|file)://[^\s@]+")


@dataclass(frozen=True, slots=True)
class Address:
    """The address of a package index: without a password, for a cell's text goes far.

    The program keeps its directives as comments, and it is part of an image that others read.
    """

    expected: str = (
        "the address of a package index, such as https://pypi.example.com/simple (a password "
        "stands in ~/.netrc or in pip's configuration, never in a cell)"
    )

    def parse(self, text: str) -> str:
        """Check the form."""
        word = one_word(text, self.expected)
        if not _ADDRESS.fullmatch(word):
            raise ValueError(self.expected)
        return word

    def render(self, value: str) -> str:
        """Quote it."""
        return quote(value)


@dataclass(frozen=True, slots=True)
class SystemPackages:
    """Packages of a distribution, each perhaps with its version: they become part of a command."""

    expected: str = "packages of the image's distribution, such as libgomp1 or git=1:2.39.5-0"

    def parse(self, text: str) -> tuple[str, ...]:
        """Check each."""
        found = words(text)
        if not found or not all(_SYSTEM.fullmatch(word) for word in found):
            raise ValueError(self.expected)
        return found

    def render(self, value: tuple[str, ...]) -> str:
        """Write them with spaces between."""
        return " ".join(value)


def directives() -> list[Directive]:
    """The table's entries, in the order in which lists show them."""
    return [
        Directive(
            "packages",
            "build.packages",
            value_types.Words("packages as pip takes them, such as pandas or scikit-learn==1.7.2"),
            "Python packages that the code needs and its image or environment may lack.",
            "%packages=pandas scikit-learn==1.7.2",
            adds_up=True,
        ),
        Directive(
            "requirements",
            "build.requirements",
            value_types.Word("a file of requirements beside the notebook", value_types.Offer.FILES),
            "A file that lists such packages, as for pip install -r.",
            "%requirements=requirements.txt",
        ),
        Directive(
            "pipIndex",
            "build.pip_index",
            Address(),
            "Where pip looks for packages, instead of its own setting.",
            "%pipIndex=https://pypi.example.com/simple",
        ),
        Directive(
            "base",
            "build.base",
            ImageName(),
            "Image that a builder begins with; else the job's own.",
            "%base=python:3.13-slim",
        ),
        Directive(
            "registry",
            "build.registry",
            ImageName("a repository such as registry.example.com/team/cells"),
            "Repository that gets the image that a builder makes.",
            "%registry=registry.example.com/team/cells",
        ),
        Directive(
            "apt",
            "build.apt",
            SystemPackages(),
            "Debian packages that the image gets; a pod builds it.",
            "%apt=libgomp1 git",
            adds_up=True,
        ),
        Directive(
            "condaEnv",
            "build.conda_env",
            value_types.Word(
                "a file such as environment.yml beside the notebook", value_types.Offer.FILES
            ),
            "What conda installs into an image that has conda; a pod builds it.",
            "%condaEnv=environment.yml",
        ),
        Directive(
            "dockerfile",
            "build.dockerfile",
            value_types.Word("a Dockerfile beside the notebook", value_types.Offer.FILES),
            "How the image's environment is built, by a pod; the cell comes on top of it.",
            "%dockerfile=Dockerfile",
        ),
        Directive(
            "s2iBuilder",
            "build.s2i_builder",
            ImageName(),
            "Builder image of source-to-image, whose scripts make the environment.",
            "%s2iBuilder=registry.example.com/s2i/python:3.13",
        ),
        Directive(
            "pushSecret",
            "build.push_secret",
            Name(),
            "Secret with registries' passwords, for the kernel and a pod that builds an image.",
            "%pushSecret=registry-push",
        ),
        Directive(
            "pipSecret",
            "build.pip_secret",
            Name(),
            "Secret whose pip.conf the pod that builds uses: a private index, and its password.",
            "%pipSecret=private-index",
        ),
    ]
