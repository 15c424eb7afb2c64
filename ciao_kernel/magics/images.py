"""The directives that say what the replicas need beside the cell's code."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ciao_kernel.magics import kinds
from ciao_kernel.magics.cluster import ImageName
from ciao_kernel.magics.directive import Directive
from ciao_kernel.magics.words import one_word, quote

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


def directives() -> list[Directive]:
    """The table's entries, in the order in which lists show them."""
    return [
        Directive(
            "packages",
            "build.packages",
            kinds.Words("packages as pip takes them, such as pandas or scikit-learn==1.7.2"),
            "Python packages that the code needs and its image or environment may lack.",
            "%packages=pandas scikit-learn==1.7.2",
            adds_up=True,
        ),
        Directive(
            "requirements",
            "build.requirements",
            kinds.Word("a file of requirements beside the notebook", kinds.Offer.FILES),
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
    ]
